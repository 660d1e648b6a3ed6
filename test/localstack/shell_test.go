// SPDX-License-Identifier: Apache-2.0

package localstack

import (
	"os/exec"
	"testing"

	"github.com/google/go-cmp/cmp"

	"maesh.dev/ichor/test/localstack/state"
)

func TestAShellTakesTheEnvironmentWhateverTheFolderIsCalled(t *testing.T) {
	t.Parallel()
	for _, folder := range []string{"/tmp/plain", "/tmp/with space", "/tmp/it's", `/tmp/$HOME"`} {
		t.Run(folder, func(t *testing.T) {
			t.Parallel()
			text, err := Environment(state.Dir(folder), folder+"/bin")
			if err != nil {
				t.Fatal(err)
			}
			out, err := exec.Command("sh", "-c", text+`printf '%s|%s|%s' "$KUBECONFIG" "$TALOSCONFIG" "${PATH%%:*}"`).CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			want := folder + "/kubeconfig|" + folder + "/talosconfig|" + folder + "/bin"
			if diff := cmp.Diff(want, string(out)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
