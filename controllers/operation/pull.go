// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"errors"
	"time"

	"maesh.dev/ichor/pkg/talos"
)

const (
	// pullTimeout bounds the pull of one machine.
	pullTimeout = time.Hour
	// pullsAtOnce is how many machines pull at once: they share a registry, and often an uplink.
	pullsAtOnce = 5
	// unreachablePatience is how long a machine may not answer that is to pull.
	unreachablePatience = 10 * time.Minute
)

// neededImage is an image that a machine must have before anything is done.
type neededImage struct {
	store     talos.ImageStore
	reference string
}

// pulling is the step of a round in which machines pull what they will need. What is there already isn't pulled again, so a
// controller that was killed pulls nothing that it finds. An image that a machine can't have fails the step at once, with
// the machine's words.
func pulling(images func(*visit) []neededImage) step {
	return step{patience: lasting(pullTimeout), try: func(v *visit, ctx context.Context) (outcome, error) { return v.pull(ctx, images(v)) }}
}

func (v *visit) pull(ctx context.Context, images []neededImage) (outcome, error) {
	came, err := v.errand(ctx, func(v *visit, ctx context.Context, say func(string)) (outcome, error) {
		ctx, cancel := context.WithTimeout(ctx, pullTimeout)
		defer cancel()
		for _, image := range images {
			if came, err := v.pullOne(ctx, image, say); err != nil || !came.done {
				return came, err
			}
		}
		return done("the images are there")
	})
	if came.unreachable && v.lasted(v.record) > unreachablePatience {
		came.failed = true
	}
	return came, err
}

// pullOne sees to one image.
func (v *visit) pullOne(ctx context.Context, image neededImage, say func(string)) (outcome, error) {
	node, err := v.reach(ctx, v.m)
	if err != nil {
		return unreachable("doesn't answer: %s", err)
	}
	defer node.Close() //nolint:errcheck // what it was told was answered
	target, ok := node.(talos.Upgrader)
	if !ok {
		return outcome{}, errors.New("the connection to the machine can't have it pull images")
	}
	switch has, err := target.HasImage(ctx, image.store, image.reference); {
	case err != nil:
		return unreachable("can't say which images it has: %s", err)
	case has:
		return done("%s is there", image.reference)
	}
	say("pulls " + image.reference)
	err = target.PullImage(ctx, image.store, image.reference, func(text string) { say("pulls " + image.reference + ": " + text) })
	switch {
	case err == nil:
		return done("%s was pulled", image.reference)
	case talos.Refused(err):
		return failed("%s", err)
	default:
		return unreachable("%s", err)
	}
}

func unreachable(format string, arguments ...any) (outcome, error) {
	came, err := waiting(format, arguments...)
	came.unreachable = true
	return came, err
}
