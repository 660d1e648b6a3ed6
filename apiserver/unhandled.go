// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"regexp"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// The library logs every error that it answers with a 500 by itself, and one about an applied object repeats what didn't
// fit in it, which may be a secret. The handlers of such errors are the process's, and may be changed before they are used.
func init() {
	for i, handle := range utilruntime.ErrorHandlers {
		utilruntime.ErrorHandlers[i] = func(ctx context.Context, err error, message string, keysAndValues ...any) {
			handle(ctx, loggable(err), message, keysAndValues...)
		}
	}
}

// aboutApplied is the part of a message about an applied object that names the object.
var aboutApplied = regexp.MustCompile(unfittingApply + `( \([^)]*\))?`)

// loggable is an error without what it repeats of an applied object. Who wrote that is told which field it is about.
func loggable(err error) error {
	if err == nil {
		return nil
	}
	if about := aboutApplied.FindString(err.Error()); about != "" {
		return errors.New(about + ": what doesn't fit isn't logged; its writer is told where it is")
	}
	return err
}
