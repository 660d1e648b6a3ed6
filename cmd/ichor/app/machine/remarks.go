// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"slices"
	"sync"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
)

// remarks collects the server's warnings by the machine that a request is about: a warning names the field, and of a
// hundred machines one wants to know which.
type remarks struct {
	env   *cli.Env
	mutex sync.Mutex
	said  map[string][]string
	// loud is true when a warning about a machine is told at once instead of noted.
	loud bool
}

func newRemarks(env *cli.Env) *remarks {
	return &remarks{env: env, said: map[string][]string{}}
}

type machineKey struct{}

// aboutMachine marks the requests that are about a machine.
func aboutMachine(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, machineKey{}, name)
}

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext. Only warnings with code 299 are meant for
// people. Source: client-go, rest/warnings.go.
func (r *remarks) HandleWarningHeaderWithContext(ctx context.Context, code int, _ string, text string) {
	if code != 299 || text == "" {
		return
	}
	name, about := ctx.Value(machineKey{}).(string)
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if slices.Contains(r.said[name], text) {
		return // the approval warns as its trial did
	}
	r.said[name] = append(r.said[name], text)
	switch {
	case !about:
		r.env.Infof("Warning: %s", text)
	case r.loud:
		r.env.Infof("Warning: %s: %s", name, text)
	}
}

// aloud tells of what is new from now on: the warnings that were noted have been shown.
func (r *remarks) aloud() {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.loud = true
}

// about are the warnings about a machine.
func (r *remarks) about(name string) []string {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return slices.Clone(r.said[name])
}
