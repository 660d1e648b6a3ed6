// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// fault is where something is wrong, and words of what is.
type fault struct{ field, words string }

func TestCheckPatch(t *testing.T) {
	t.Parallel()
	const secret = "do-not-repeat-me"
	for name, tc := range map[string]struct {
		parts PatchParts
		want  []fault
	}{
		"sysctls":                   {parts: PatchParts{Machine: []byte(`{"sysctls":{"net.core.somaxconn":"4096"}}`)}},
		"arguments of the API":      {parts: PatchParts{Cluster: []byte(`{"apiServer":{"extraArgs":{"event-ttl":"2h"}}}`)}},
		"an argument several times": {parts: PatchParts{Machine: []byte(`{"kubelet":{"extraArgs":{"feature-gates":["A=true","B=true"]}}}`)}},
		"a volume and a hostname": {parts: PatchParts{Documents: [][]byte{
			[]byte(`{"apiVersion":"v1alpha1","kind":"UserVolumeConfig","name":"data","provisioning":{"diskSelector":{"match":"disk.transport == 'nvme'"},"minSize":"100GiB"}}`),
			[]byte(`{"apiVersion":"v1alpha1","kind":"HostnameConfig","auto":"stable"}`),
		}}},
		"nothing of a section": {parts: PatchParts{Machine: []byte(`{}`)}},
		"a field is deleted":   {parts: PatchParts{Machine: []byte(`{"sysctls":{"net.core.somaxconn":{"$patch":"delete"}}}`)}},
		"a document is deleted": {parts: PatchParts{Documents: [][]byte{
			[]byte(`{"apiVersion":"v1alpha1","kind":"UserVolumeConfig","name":"data","$patch":"delete"}`)}}},
		"unknown fields, all named": {
			parts: PatchParts{Machine: []byte(`{"sysctl":{},"kubelet":{"extraArg":{}}}`), Cluster: []byte(`{"apiserver":{}}`)},
			want:  []fault{{"spec.cluster.apiserver", "no field"}, {"spec.machine.kubelet.extraArg", "no field"}, {"spec.machine.sysctl", "no field"}},
		},
		"wrong types": {
			parts: PatchParts{Machine: []byte(`{"sysctls":"none","kubelet":{"defaultRuntimeSeccompProfileEnabled":{"a":"b"}}}`)},
			want:  []fault{{"spec.machine.kubelet.defaultRuntimeSeccompProfileEnabled", "type"}, {"spec.machine.sysctls", "type"}},
		},
		"a field of a list's element": {
			parts: PatchParts{Machine: []byte(`{"files":[{"path":"/var/a","content":"","op":"create"},{"pfad":"/var/b"}]}`)},
			want:  []fault{{"spec.machine.files[1].pfad", "no field"}},
		},
		"an unknown kind": {
			parts: PatchParts{Documents: [][]byte{[]byte(`{"apiVersion":"v1alpha1","kind":"UserVolumesConfig","name":"a"}`)}},
			want:  []fault{{"spec.documents[0].kind", "UserVolumeConfig"}},
		},
		"an unknown field of a document": {
			parts: PatchParts{Documents: [][]byte{[]byte(`{"apiVersion":"v1alpha1","kind":"UserVolumeConfig","name":"data","provisioning":{"minSiz":"1GiB"}}`)}},
			want:  []fault{{"spec.documents[0].provisioning.minSiz", "no field"}},
		},
		"no kind, no version": {
			parts: PatchParts{Documents: [][]byte{[]byte(`{"machine":{"sysctls":{}}}`)}},
			want:  []fault{{"spec.documents[0].apiVersion", "v1alpha1"}, {"spec.documents[0].kind", "spec.machine"}},
		},
		"a kind that is no text": {
			parts: PatchParts{Documents: [][]byte{[]byte(`{"apiVersion":"v1alpha1","kind":{},"name":7}`)}},
			want:  []fault{{"spec.documents[0].kind", "text"}, {"spec.documents[0].name", "text"}},
		},
		"an operation of a JSON patch": {
			parts: PatchParts{Documents: [][]byte{[]byte(`{"op":"replace","path":"/machine/token","value":"` + secret + `"}`)}},
			want:  []fault{{"spec.documents[0]", "RFC 6902"}},
		},
		"one document twice": {
			parts: PatchParts{Documents: [][]byte{
				[]byte(`{"apiVersion":"v1alpha1","kind":"UserVolumeConfig","name":"data","provisioning":{"minSize":"1GiB"}}`),
				[]byte(`{"apiVersion":"v1alpha1","kind":"UserVolumeConfig","name":"data","provisioning":{"minSize":"2GiB"}}`),
			}},
			want: []fault{{"spec.documents[1]", "UserVolumeConfig/data"}},
		},
		"the machine's token": {
			parts: PatchParts{Machine: []byte(`{"token":"` + secret + `"}`)},
			want:  []fault{{"spec.machine.token", "secretValues"}},
		},
		"the machine's and the cluster's keys": {
			parts: PatchParts{
				Machine: []byte(`{"ca":{"crt":"","key":"ZG8tbm90LXJlcGVhdC1tZQ=="}}`),
				Cluster: []byte(`{"serviceAccount":{"key":"ZG8tbm90LXJlcGVhdC1tZQ=="},"etcd":{"ca":{"key":"ZG8tbm90LXJlcGVhdC1tZQ=="}}}`),
			},
			want: []fault{{"spec.cluster.etcd.ca.key", "secretValues"}, {"spec.cluster.serviceAccount.key", "secretValues"}, {"spec.machine.ca.key", "secretValues"}},
		},
		"the cluster's secrets": {
			parts: PatchParts{Cluster: []byte(`{"secret":"` + secret + `","secretboxEncryptionSecret":"` + secret + `"}`)},
			want:  []fault{{"spec.cluster.secret", "secretValues"}, {"spec.cluster.secretboxEncryptionSecret", "secretValues"}},
		},
		"a registry's password": {
			parts: PatchParts{Documents: [][]byte{[]byte(`{"apiVersion":"v1alpha1","kind":"RegistryAuthConfig","name":"ghcr.io","username":"me","password":"` + secret + `"}`)}},
			want:  []fault{{"spec.documents[0].password", "secretValues"}},
		},
		"a WireGuard key": {
			parts: PatchParts{Documents: [][]byte{[]byte(`{"apiVersion":"v1alpha1","kind":"WireguardConfig","name":"wg0","privateKey":"` + secret + `"}`)}},
			want:  []fault{{"spec.documents[0].privateKey", "secretValues"}},
		},
		"a private key in a file": {
			parts: PatchParts{Machine: []byte(`{"files":[{"path":"/var/a","op":"create","content":"-----BEGIN RSA PRIVATE KEY-----\n` + secret + `"}]}`)},
			want:  []fault{{"spec.machine", "private key"}},
		},
		"a secret of the wrong type isn't repeated": {
			parts: PatchParts{Machine: []byte(`{"token":["` + secret + `"]}`)},
			want:  []fault{{"spec.machine.token", "type"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			errs := CheckPatch(tc.parts, field.NewPath("spec"))
			if diff := cmp.Diff(fields(tc.want), fieldsOf(errs)); diff != "" {
				t.Fatalf("faulty fields (-want +got):\n%s\n%v", diff, errs)
			}
			for _, want := range tc.want {
				if !mentions(errs, want) {
					t.Errorf("want %q said of %s, got %v", want.words, want.field, errs)
				}
			}
			if len(errs) > 0 && strings.Contains(errs.ToAggregate().Error(), secret) {
				t.Errorf("the error repeats a secret: %v", errs)
			}
		})
	}
}

func fields(faults []fault) map[string]bool {
	out := map[string]bool{}
	for _, fault := range faults {
		out[fault.field] = true
	}
	return out
}

func fieldsOf(errs field.ErrorList) map[string]bool {
	out := map[string]bool{}
	for _, err := range errs {
		out[err.Field] = true
	}
	return out
}

func mentions(errs field.ErrorList, want fault) bool {
	for _, err := range errs {
		if err.Field == want.field && strings.Contains(err.Error(), want.words) {
			return true
		}
	}
	return false
}

func FuzzCheckPatch(f *testing.F) {
	f.Add([]byte(`{"sysctls":{"a":"b"}}`), []byte(`{"apiVersion":"v1alpha1","kind":"HostnameConfig","auto":"stable"}`))
	f.Add([]byte(`{"$patch":"delete"}`), []byte(`{"kind":{}}`))
	f.Fuzz(func(_ *testing.T, machine, document []byte) {
		CheckPatch(PatchParts{Machine: machine, Documents: [][]byte{document}}, field.NewPath("spec"))
	})
}
