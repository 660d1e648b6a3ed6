// SPDX-License-Identifier: Apache-2.0

package secretsbundle

import (
	"bytes"
	"strings"
	"testing"
)

// FuzzRead reads bytes as a bundle, encrypted or not. No error quotes what was read.
func FuzzRead(f *testing.F) {
	f.Add([]byte(""))
	f.Add([]byte("cluster:\n  id: a\n  secret: SECRETWORD\ncerts: {etcd: {crt: SECRETWORD, key: SECRETWORD}}\n"))
	f.Add([]byte("cluster: [SECRETWORD]\n"))
	f.Add([]byte("cluster: &a {id: *a}\n"))
	f.Add([]byte("age-encryption.org/v1\n-> X25519 SECRETWORD\n"))
	f.Add([]byte("-----BEGIN AGE ENCRYPTED FILE-----\nU0VDUkVUV09SRA==\n-----END AGE ENCRYPTED FILE-----\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		_, _, err := Read(bytes.NewReader(text), Keys{Passphrase: func() (string, error) { return "x", nil }})
		if err != nil && strings.Contains(err.Error(), "SECRETWORD") {
			t.Errorf("the error quotes the bundle: %v", err)
		}
	})
}
