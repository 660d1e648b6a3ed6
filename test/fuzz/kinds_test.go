// SPDX-License-Identifier: Apache-2.0

// Package fuzz_test throws bytes at what decodes and judges objects of every kind. Other decoders have their fuzz targets
// beside them.
package fuzz_test

import (
	"bytes"
	"encoding/json"
	"testing"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"maesh.dev/ichor/artifacts"
	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/pkg/apis/ichor/install"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/apis/ichor/validation"
)

var (
	scheme = func() *runtime.Scheme {
		s := runtime.NewScheme()
		install.Install(s)
		return s
	}()
	strict = serializer.NewCodecFactory(scheme, serializer.EnableStrict)
)

// judge judges an object as the server does when it is made, and when it is written over itself.
func judge(obj runtime.Object) field.ErrorList {
	switch o := obj.(type) {
	case *ichor.TalosCluster:
		return append(validation.ValidateTalosCluster(o), validation.ValidateTalosClusterUpdate(o, o)...)
	case *ichor.TalosMachine:
		return append(validation.ValidateTalosMachine(o), validation.ValidateTalosMachineUpdate(o, o)...)
	case *ichor.TalosConfigPatch:
		return append(validation.ValidateTalosConfigPatch(o), validation.ValidateTalosConfigPatchUpdate(o, o)...)
	case *ichor.TalosOperation:
		return append(validation.ValidateTalosOperation(o), validation.ValidateTalosOperationUpdate(o, o)...)
	case *ichor.TalosEtcdBackup:
		return append(validation.ValidateTalosEtcdBackup(o), validation.ValidateTalosEtcdBackupUpdate(o, o)...)
	case *ichor.TalosStorage:
		return append(validation.ValidateTalosStorage(o), validation.ValidateTalosStorageUpdate(o, o)...)
	case *ichor.MachineReclaim:
		return append(validation.ValidateMachineReclaim(o), validation.ValidateMachineReclaimUpdate(o, o)...)
	case *ichor.TalosCredentialRequest:
		return append(validation.ValidateTalosCredentialRequest(o), validation.ValidateTalosCredentialRequestUpdate(o, o)...)
	case *ichor.IchorInstallation:
		return append(validation.ValidateIchorInstallation(o), validation.ValidateIchorInstallationUpdate(o, o)...)
	case *ichor.IchorUser:
		return append(validation.ValidateIchorUser(o), append(validation.ValidateIchorUserUpdate(o, o), validation.ValidateIchorUserCertificate(o, o)...)...)
	}
	return nil
}

// FuzzObject decodes bytes as the server does. What it takes is judged without a panic, says where each fault is, and
// what has no fault reads back as what it was written from.
func FuzzObject(f *testing.F) {
	examples, err := artifacts.Examples()
	if err != nil {
		f.Fatal(err)
	}
	for _, example := range examples {
		text, err := json.Marshal(example)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	for kind := range scheme.KnownTypes(v1alpha1.SchemeGroupVersion) {
		for _, rest := range []string{`}`, `,"spec":{}}`, `,"spec":null,"status":null,"metadata":null}`, `,"metadata":{"name":"a","labels":{"":""}},"spec":[]}`} {
			f.Add([]byte(`{"apiVersion":"ichor.maesh.dev/v1alpha1","kind":"` + kind + `"` + rest))
		}
	}
	f.Add([]byte(`{"apiVersion":"ichor.maesh.dev/v1alpha1","kind":"TalosConfigPatch","metadata":{"name":"a"},"spec":{"documents":[{"kind":"UserVolumeConfig"},null],"machine":{"$patch":"delete"}}}`))
	f.Add([]byte(`{"apiVersion":"ichor.maesh.dev/v1alpha1","kind":"TalosOperation","metadata":{"name":"a"},"spec":{"windows":[{"schedule":"0 0 31 2 *","duration":"-1s","timeZone":"Mars/Olympus"}],"gates":[{"name":"","cel":{"expression":"1"}}]}}`))
	f.Add([]byte(`{"apiVersion":"ichor.maesh.dev/v1alpha1","kind":"TalosCredentialRequest","metadata":{"name":"a"},"spec":{"request":"LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KCi0tLS0tRU5EIENFUlRJRklDQVRFIFJFUVVFU1QtLS0tLQo=","ttl":"9999999h"}}`))
	codec := strict.CodecForVersions(strict.LegacyCodec(v1alpha1.SchemeGroupVersion), strict.UniversalDecoder(), v1alpha1.SchemeGroupVersion, runtime.InternalGroupVersioner)
	f.Fuzz(func(t *testing.T, text []byte) {
		obj, err := runtime.Decode(codec, text)
		if err != nil {
			return
		}
		before := obj.DeepCopyObject()
		faults := judge(obj)
		if !apiequality.Semantic.DeepEqual(before, obj) {
			t.Errorf("judging changed the object %s", text)
		}
		for _, fault := range faults {
			if fault.Field == "" {
				t.Errorf("%s: a fault says not where: %v", text, fault)
			}
		}
		written, err := runtime.Encode(codec, obj)
		if err != nil {
			t.Fatalf("%s can be read and not written: %v", text, err)
		}
		again, err := runtime.Decode(codec, written)
		if err != nil {
			t.Fatalf("%s was read and written, and can't be read again: %v", text, err)
		}
		// Parts that are kept as they came may be spelled in two ways, so what is compared is what is written.
		rewritten, err := runtime.Encode(codec, again)
		if err != nil || len(faults) == 0 && !bytes.Equal(written, rewritten) {
			t.Errorf("%s is written as %s and then as %s, %v", text, written, rewritten, err)
		}
	})
}
