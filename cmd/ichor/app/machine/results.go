// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
)

// results collects what came of each of several machines: every failure gets its lines, and any makes the whole fail.
type results struct {
	env      *cli.Env
	of       int
	failures []error
}

// add takes in one machine's outcome and tells of a failure at once.
func (r *results) add(name string, err error) {
	if err == nil {
		return
	}
	if r.of == 1 { // the program's last line tells
		if !isStatus(err) {
			err = fmt.Errorf("machine %s: %w", name, err)
		}
		r.failures = append(r.failures, err)
		return
	}
	r.failures = append(r.failures, err)
	for i, line := range cli.Explain(err) {
		if i == 0 {
			line = name + ": " + line
		}
		r.env.Infof("error: %s", line)
	}
}

// isStatus is true for the server's own errors, which name the object already.
func isStatus(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status)
}

// err is the outcome of the whole: the failure itself if there was one machine, else how many failed. The exit status is
// the failures' own where they agree.
func (r *results) err() error {
	if len(r.failures) == 0 {
		return nil
	}
	if r.of == 1 {
		return r.failures[0]
	}
	code := cli.Code(r.failures[0])
	for _, failure := range r.failures {
		if cli.Code(failure) != code {
			code = cli.ExitFailed
		}
	}
	return cli.WithCode(code, fmt.Errorf("%d of %d machines failed, see above", len(r.failures), r.of))
}
