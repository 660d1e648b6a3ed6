// SPDX-License-Identifier: Apache-2.0

package talosconfigpatches

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/klog/v2"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/pkg/machineconfig"
	"maesh.dev/ichor/registry/verbs"
)

const (
	// dryRunTime is how long a dry run may take to tell which machines would change. The answer is to come within two
	// seconds; the rest is for the write itself and for the way.
	dryRunTime = 1500 * time.Millisecond
	// warningLength is the longest warning, in characters.
	warningLength = 120
	// warnedMachines is how many machines are named, warnedRefusals how many reasons for which machines can't have the patch.
	warnedMachines, warnedRefusals = 10, 5
)

// notComputed is the one warning where the time didn't suffice.
const notComputed = "which machines would change was not computed in time; talosconfigpatches/preview (ichor patch diff) tells"

// tried warns whoever tries a write of what it would do to machines. It never fails, and never takes long.
func (s *seer) tried(ctx context.Context, patch, old *ichor.TalosConfigPatch) {
	if patch == nil && old == nil || patch != nil && old != nil && apiequality.Semantic.DeepEqual(patch.Spec, old.Spec) {
		return
	}
	for _, text := range s.warnings(ctx, change{before: old, after: patch}) {
		warning.AddWarning(ctx, "", text)
	}
}

func (s *seer) warnings(ctx context.Context, c change) []string {
	if s.checker.Require(ctx, verbs.ReadConfig, "") != nil {
		return []string{"which machines would change is told to who may get talosmachines/config only"}
	}
	bounded, cancel := context.WithTimeout(ctx, dryRunTime)
	defer cancel()
	// In a goroutine of its own, because the first rendering of a process makes placeholders for keys, which takes a second
	// and can't be stopped. It ends with the context, or after that second.
	answer := make(chan []string, 1)
	go func() {
		said := []string{notComputed}
		defer func() {
			if crash := recover(); crash != nil {
				klog.FromContext(ctx).Error(nil, "Foreseeing what a patch would do broke off", "patch", klog.KObj(c.object()), "crash", crash)
				said = []string{notComputed}
			}
			answer <- said
		}()
		done, err := s.turn(bounded)
		if err != nil {
			return
		}
		defer done()
		scene, err := s.look(bounded, c)
		if err != nil {
			klog.FromContext(ctx).V(2).Info("What a patch would do can't be foreseen", "patch", klog.KObj(c.object()), "err", err)
			return
		}
		foresight, err := scene.foresee(bounded)
		if err == nil && foresight.NotComputed == 0 {
			said = describe(foresight, scene.cluster != nil)
		}
	}()
	select {
	case said := <-answer:
		return said
	case <-bounded.Done():
		return []string{notComputed}
	}
}

func (c change) object() *ichor.TalosConfigPatch {
	if c.after != nil {
		return c.after
	}
	return c.before
}

// describe says in a few short lines what would happen.
func describe(f *machineconfig.Foresight, clusterExists bool) []string {
	changed, reboot := f.Changed()
	var said []string
	say := func(format string, args ...any) { said = append(said, fit(fmt.Sprintf(format, args...))) }
	switch {
	case !clusterExists:
		say("would change no machine: its cluster is not there")
	case changed == 0:
		say("would change no machine; it is for %d approved ones", f.Matched)
	default:
		say("would change %d machines, of which %d need a reboot; it is for %d approved ones", changed, reboot, f.Matched)
	}
	named := 0
	for i := range f.Changes {
		for _, machine := range f.Changes[i].Machines {
			if named++; named > warnedMachines {
				break
			}
			say("would change %s%s", machine, howItChanges(&f.Changes[i]))
		}
	}
	for i := range f.Refusals[:min(len(f.Refusals), warnedRefusals)] {
		refusal := &f.Refusals[i]
		others := ""
		if more := len(refusal.Machines) - 1; more > 0 {
			others = fmt.Sprintf(" and %d more", more)
		}
		say("refused by %s%s: %s", refusal.Machines[0], others, fault(refusal))
	}
	if more := len(f.Refusals) - warnedRefusals; more > 0 {
		say("refused for %d more reasons", more)
	}
	if f.NotReached > 0 {
		say("does not reach %d machines, which were adopted with a configuration of their own", f.NotReached)
	}
	return said
}

// howItChanges says whether a reboot is needed, and the first field.
func howItChanges(c *machineconfig.ForeseenChange) string {
	switch {
	case c.Unknown != "":
		return ", which has no configuration it could be given now"
	case len(c.Late) > 0:
		return ", at a reboot: " + where(&c.Late[0])
	default:
		return ": " + where(&c.Differences[0])
	}
}

// where names a field.
func where(d *machineconfig.Difference) string {
	path := d.Path.String()
	switch {
	case d.Document == machineconfig.MainDocument:
		return path
	case path == "":
		return d.Document
	default:
		return d.Document + " " + path
	}
}

func fault(r *machineconfig.ForeseenRefusal) string {
	if r.Path == "" {
		return r.Reason
	}
	return r.Path + ": " + r.Reason
}

// fit cuts a text after as many characters as a warning may have.
func fit(text string) string {
	if utf8.RuneCountInString(text) <= warningLength {
		return text
	}
	return strings.TrimRight(string([]rune(text)[:warningLength-1]), " ") + "…"
}
