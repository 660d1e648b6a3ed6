// SPDX-License-Identifier: Apache-2.0

package talos_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	cosi "github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"google.golang.org/protobuf/types/known/timestamppb"

	"maesh.dev/ichor/pkg/talos"
)

func TestBannerWords(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]string{
		"SSH-2":                                "an SSH server",
		"HTTP/":                                "an HTTP server without TLS",
		"<!DOC":                                "an HTTP server without TLS",
		"RFB 0":                                "a VNC server",
		"220 m":                                "an SMTP or FTP server",
		"\x00\x00\x12\x04\x00":                 "an HTTP/2 or gRPC server without TLS",
		"\x00\x00\x13\x04\x00":                 "a server that doesn't speak TLS",
		"\x00\x00\x06\x04\x00\x00\x00\x00\x01": "a server that doesn't speak TLS",
		"":                                     "a server that doesn't speak TLS",
		"hello":                                "a server that doesn't speak TLS",
	} {
		if got := talos.BannerWords([]byte(header)); got != want {
			t.Errorf("BannerWords(%q) = %q, want %q", header, got, want)
		}
	}
}

func FuzzBannerWords(f *testing.F) {
	f.Add([]byte("SSH-2.0"))
	f.Add([]byte("\x00\x00\x12\x04\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, header []byte) {
		if talos.BannerWords(header) == "" {
			t.Errorf("no words for %q", header)
		}
	})
}

func FuzzClean(f *testing.F) {
	f.Add("Q6RL12\x00\x00", 3)
	f.Add("\x1b[31mred", 1)
	f.Add(strings.Repeat("é", 300), 1)
	f.Fuzz(func(t *testing.T, text string, times int) {
		text = strings.Repeat(text, max(1, min(times, 100)))
		got := talos.Clean(text)
		if !utf8.ValidString(got) || len(got) > 253 || strings.ContainsFunc(got, unicode.IsControl) || got != talos.Clean(got) {
			t.Errorf("Clean(%q) = %q", text, got)
		}
	})
}

func FuzzWithoutSecrets(f *testing.F) {
	f.Add("refused\ndiff: x")
	f.Add("abcdef.0123456789abcdef")
	f.Add("0123456789\xe1abcdef")
	f.Fuzz(func(t *testing.T, text string) {
		if got := talos.WithoutSecrets("fedcba.98765432\xe1\x0110fedcba" + "\n" + text); len(text) < 200 && strings.Contains(got, "9876543210fedcba") && !strings.Contains(talos.Clean(text), "9876543210fedcba") {
			t.Errorf("a token with a byte in it that is taken out is shown: %q", got)
		}
		got := talos.WithoutSecrets(text + " abcdef.0123456789abcdef\nDiff:\nSECRET")
		// Longer texts are cut differently by what they are compared with.
		known := func(word string) bool { return len(text) >= 200 || strings.Contains(talos.Clean(text), word) }
		if strings.Contains(got, "0123456789abcdef") && !known("0123456789abcdef") || strings.Contains(got, "SECRET") && !known("SECRET") || len(got) > 1024 {
			t.Errorf("withoutSecrets(%q) = %q", text, got)
		}
	})
}

// FuzzDecode sends a reader what an impostor might: any bytes as any resource that Ichor reads.
func FuzzDecode(f *testing.F) {
	kinds := []string{
		hardware.SystemInformationType, hardware.MemoryModuleType, hardware.ProcessorType, network.LinkStatusType, network.AddressStatusType,
		network.NodeAddressType, block.DiskType, block.DiscoveredVolumeType, block.SystemDiskType, runtime.MachineStatusType,
		runtime.ExtensionStatusType, runtime.SecurityStateType, runtime.VersionType,
	}
	for i := range kinds {
		f.Add(uint8(i), "id", "1", []byte("\x0a\x03abc\x12\x00"), "uuid: x")
	}
	f.Fuzz(func(t *testing.T, kind uint8, id, version string, spec []byte, yamlSpec string) {
		raw := &cosi.Resource{
			Metadata: &cosi.Metadata{
				Namespace: "runtime", Type: kinds[int(kind)%len(kinds)], Id: id, Version: version, Phase: "running",
				Created: timestamppb.Now(), Updated: timestamppb.Now(),
			},
			Spec: &cosi.Spec{ProtoSpec: spec, YamlSpec: yamlSpec},
		}
		talos.FactsFromRaw(raw)
		_, _ = talos.ConfigurationBytes(raw)
		_, _ = talos.BootIDOf(raw)
		_, _ = talos.Untar(spec, "kubeconfig")
	})
}
