// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"errors"
	"fmt"
	"testing"
)

func TestWhatIsLoggedOfAnError(t *testing.T) {
	t.Parallel()
	applied := errors.New("failed to create typed patch object (/x; ichor.maesh.dev/v1alpha1, Kind=TalosConfigPatch): .spec.machine: expected map, got &{[hunter2]}")
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"an applied object": {
			fmt.Errorf("apiserver received an error that is not an metav1.Status: %#+v: %w", applied, applied),
			"failed to create typed patch object (/x; ichor.maesh.dev/v1alpha1, Kind=TalosConfigPatch): what doesn't fit isn't logged; its writer is told where it is",
		},
		"another": {errors.New("no route to host"), "no route to host"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := loggable(test.err); got.Error() != test.want {
				t.Errorf("%q is logged, want %q", got, test.want)
			}
		})
	}
	if loggable(nil) != nil {
		t.Error("nothing became an error")
	}
}
