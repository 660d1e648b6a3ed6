// SPDX-License-Identifier: Apache-2.0

package flags_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"maesh.dev/ichor/test/hollow/kubernetes/flags"
)

func TestExtraArguments(t *testing.T) {
	t.Parallel()

	policies := map[string]flags.Policy{"features": flags.Extend, "ca": flags.Refuse}

	for _, test := range []struct {
		name    string
		extra   map[string][]string
		want    []string
		wantErr string
	}{
		{
			name: "nothing extra keeps the defaults, sorted",
			want: []string{"--ca=ca.crt", "--features=A", "--level=1"},
		},
		{
			name:  "an ordinary flag is replaced",
			extra: map[string][]string{"level": {"2"}},
			want:  []string{"--ca=ca.crt", "--features=A", "--level=2"},
		},
		{
			name:  "a list is extended without repeating what it has",
			extra: map[string][]string{"features": {"A, B", "C"}},
			want:  []string{"--ca=ca.crt", "--features=A,B,C", "--level=1"},
		},
		{
			name:  "a flag given twice is repeated",
			extra: map[string][]string{"level": {"2", "3"}},
			want:  []string{"--ca=ca.crt", "--features=A", "--level=2", "--level=3"},
		},
		{
			name:    "a flag that Talos owns is refused and nothing else changes",
			extra:   map[string][]string{"ca": {"mine.crt"}, "level": {"9"}},
			want:    []string{"--ca=ca.crt", "--features=A", "--level=1"},
			wantErr: `extra arg "ca" is not allowed`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			set := flags.Of(map[string]string{"ca": "ca.crt", "features": "A", "level": "1"})

			gotErr := ""
			if err := set.Merge(test.extra, policies); err != nil {
				gotErr = err.Error()
			}

			if diff := cmp.Diff(test.wantErr, gotErr); diff != "" {
				t.Errorf("error of merging %v (-want +got):\n%s", test.extra, diff)
			}

			if diff := cmp.Diff(test.want, set.Args()); diff != "" {
				t.Errorf("flags after merging %v (-want +got):\n%s", test.extra, diff)
			}
		})
	}
}

func TestWildcardListenersAreBoundToTheNode(t *testing.T) {
	t.Parallel()

	set := flags.Of(map[string]string{
		"bind-address":        "0.0.0.0",
		"listen-metrics-urls": "http://0.0.0.0:2381,http://[::]:2382",
		"version":             "10.0.0.0",
	})
	set.BindTo(netip.MustParseAddr("127.0.20.1"))

	want := []string{
		"--bind-address=127.0.20.1",
		"--listen-metrics-urls=http://127.0.20.1:2381,http://127.0.20.1:2382",
		"--version=10.0.0.0",
	}

	if diff := cmp.Diff(want, set.Args()); diff != "" {
		t.Errorf("bound flags (-want +got):\n%s", diff)
	}
}
