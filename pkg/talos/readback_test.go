// SPDX-License-Identifier: Apache-2.0

package talos_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"strings"
	"testing"

	cosi "github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	configapi "github.com/siderolabs/talos/pkg/machinery/api/resource/config"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"maesh.dev/ichor/pkg/talos"
)

// newerConfig holds a document that this version of the machinery doesn't know.
const newerConfig = "version: v1alpha1\nmachine: {type: worker}\n---\napiVersion: v1alpha1\nkind: FromTheFuture\nsecret: SECRET\n"

func TestConfigurationBytes(t *testing.T) {
	t.Parallel()
	encoded, err := proto.Marshal(&configapi.MachineConfigSpec{YamlMarshalled: []byte(newerConfig)})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		spec *cosi.Spec
		want string // empty: an error
	}{
		"as a protocol buffer":                 {&cosi.Spec{ProtoSpec: encoded, YamlSpec: "ignored"}, newerConfig},
		"as a YAML string":                     {&cosi.Spec{YamlSpec: "|\n  " + strings.ReplaceAll(strings.TrimSuffix(newerConfig, "\n"), "\n", "\n  ") + "\n"}, newerConfig},
		"as YAML that is no string":            {&cosi.Spec{YamlSpec: "secret: SECRET"}, ""},
		"as a protocol buffer that is damaged": {&cosi.Spec{ProtoSpec: encoded[:10]}, ""},
		"not at all":                           {nil, ""},
	} {
		got, err := talos.ConfigurationBytes(&cosi.Resource{Spec: tc.spec})
		if string(got) != tc.want || (err == nil) != (tc.want != "") {
			t.Errorf("%s: got %q, error %v; want %q", name, got, err, tc.want)
		}
		if err != nil && strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: the error shows a secret: %v", name, err)
		}
	}
}

func TestRunningConfigurationOfAMachineWithout(t *testing.T) {
	t.Parallel()
	node, credentials := configuredNode(t)
	if _, err := node.dialConfigured(t, credentials).RunningConfiguration(t.Context()); talos.Code(err) != codes.NotFound {
		t.Errorf("got error %v, want NotFound", err)
	}
}

func chunks(data []byte, size int) []*common.Data {
	var out []*common.Data
	for len(data) > 0 {
		n := min(size, len(data))
		out = append(out, &common.Data{Bytes: data[:n]})
		data = data[n:]
	}
	return out
}

func TestBootID(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		chunks []*common.Data
		fail   error
		want   string // empty: an error
	}{
		"in chunks":                      {chunks([]byte("1F2E3d4c-0000-4000-8000-000000000001\n"), 10), nil, "1f2e3d4c-0000-4000-8000-000000000001"},
		"empty":                          {nil, nil, ""},
		"a chunk that is an error":       {[]*common.Data{{Metadata: &common.Metadata{Error: "no such file"}}}, nil, ""},
		"endless":                        {chunks(bytes.Repeat([]byte("x"), 1<<20), 1024), nil, ""},
		"refused, and no resource of it": {nil, status.Error(codes.PermissionDenied, "not authorized"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node, credentials := configuredNode(t)
			node.onRead = func(stream machineapi.MachineService_ReadServer) error {
				for _, chunk := range tc.chunks {
					if err := stream.Send(chunk); err != nil {
						return err
					}
				}
				return tc.fail
			}
			got, err := node.dialConfigured(t, credentials).BootID(t.Context())
			if got != tc.want || (err == nil) != (tc.want != "") {
				t.Errorf("got %q, error %v; want %q", got, err, tc.want)
			}
		})
	}
}

func TestBootIDResource(t *testing.T) {
	t.Parallel()
	got, err := talos.BootIDOf(&cosi.Resource{Spec: &cosi.Spec{YamlSpec: "bootID: 1f2e3d4c-0000-4000-8000-000000000001\n"}})
	if got != "1f2e3d4c-0000-4000-8000-000000000001" || err != nil {
		t.Errorf("got %q, error %v", got, err)
	}
	if got, err := talos.BootIDOf(&cosi.Resource{Spec: &cosi.Spec{YamlSpec: "[]"}}); err == nil {
		t.Errorf("a list is no boot id, got %q", got)
	}
}

func archive(t *testing.T, name string, content []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	files := tar.NewWriter(zipped)
	if err := files.WriteHeader(&tar.Header{Name: name, Size: int64(len(content)), Mode: 0o600, Typeflag: tar.TypeReg}); err != nil {
		t.Fatal(err)
	}
	_, _ = files.Write(content)
	_ = files.Close()
	_ = zipped.Close()
	return out.Bytes()
}

func TestKubeconfig(t *testing.T) {
	t.Parallel()
	good := []byte("apiVersion: v1\nkind: Config\n")
	for name, tc := range map[string]struct {
		sent []byte
		want string // empty: an error
	}{
		"as Talos sends it":    {archive(t, "kubeconfig", good), string(good)},
		"another file":         {archive(t, "passwd", good), ""},
		"no archive":           {good, ""},
		"a compression bomb":   {archive(t, "kubeconfig", make([]byte, 64<<20)), ""},
		"an archive cut short": {archive(t, "kubeconfig", good)[:40], ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node, credentials := configuredNode(t)
			node.onKube = func(stream machineapi.MachineService_KubeconfigServer) error {
				for _, chunk := range chunks(tc.sent, 1024) {
					if err := stream.Send(chunk); err != nil {
						return err
					}
				}
				return nil
			}
			got, err := node.dialConfigured(t, credentials).Kubeconfig(t.Context())
			if string(got) != tc.want || (err == nil) != (tc.want != "") {
				t.Errorf("got %q, error %v; want %q", got, err, tc.want)
			}
		})
	}
}
