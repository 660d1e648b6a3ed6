// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
)

func TestWarningsAreToldByMachineAndOnce(t *testing.T) {
	t.Parallel()
	var told bytes.Buffer
	noted := newRemarks(&cli.Env{IOStreams: genericiooptions.IOStreams{ErrOut: &told}})
	say := func(machine, text string) {
		ctx := t.Context()
		if machine != "" {
			ctx = aboutMachine(ctx, machine)
		}
		noted.HandleWarningHeaderWithContext(ctx, 299, "-", text)
	}
	say("", "the server is old")
	say("m-1", "a disk holds data")
	say("m-2", "a disk holds data")
	noted.HandleWarningHeaderWithContext(aboutMachine(t.Context(), "m-1"), 110, "-", "a cache's own")
	if diff := cmp.Diff([]string{"a disk holds data"}, noted.about("m-1")); diff != "" {
		t.Errorf("about m-1 (-want +got):\n%s", diff)
	}
	noted.aloud()
	say("m-1", "a disk holds data")
	say("m-2", "another zone")
	if diff := cmp.Diff("Warning: the server is old\nWarning: m-2: another zone\n", told.String()); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}
