// SPDX-License-Identifier: Apache-2.0

package secretsbundle

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"filippo.io/age/armor"
)

// fastWork keeps scrypt quick; a real file takes a second.
const fastWork = 4

func encrypt(t *testing.T, text []byte, armored bool, to age.Recipient) []byte {
	t.Helper()
	var out bytes.Buffer
	var sink io.WriteCloser = struct {
		io.Writer
		io.Closer
	}{&out, io.NopCloser(nil)}
	if armored {
		sink = armor.NewWriter(&out)
	}
	writer, err := age.Encrypt(sink, to)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := writer.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(writer.Close(), sink.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestABundleIsReadFromAFile(t *testing.T) {
	t.Parallel()
	bundle := generate(t)
	plain, err := bundle.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	spoken, err := age.NewScryptRecipient("correct horse")
	if err != nil {
		t.Fatal(err)
	}
	spoken.SetWorkFactor(fastWork)
	says := func(text string) func() (string, error) { return func() (string, error) { return text, nil } }
	damaged := bytes.Clone(encrypt(t, plain, false, identity.Recipient()))
	damaged[len(damaged)-1] ^= 1
	left := errors.New("the person left")

	for name, tc := range map[string]struct {
		text      []byte
		keys      Keys
		encrypted bool
		wantErr   string
		locked    bool
	}{
		"as talosctl writes it":            {text: plain},
		"encrypted for an identity":        {text: encrypt(t, plain, false, identity.Recipient()), keys: Keys{Identities: []byte("# mine\n" + identity.String() + "\n")}, encrypted: true},
		"the same in letters":              {text: encrypt(t, plain, true, identity.Recipient()), keys: Keys{Identities: []byte(identity.String())}, encrypted: true},
		"encrypted with a passphrase":      {text: encrypt(t, plain, false, spoken), keys: Keys{Passphrase: says("correct horse")}, encrypted: true},
		"with a passphrase, in letters":    {text: encrypt(t, plain, true, spoken), keys: Keys{Passphrase: says("correct horse")}, encrypted: true},
		"the wrong passphrase":             {text: encrypt(t, plain, false, spoken), keys: Keys{Passphrase: says("battery")}, wantErr: "the passphrase is wrong", locked: true},
		"an empty passphrase":              {text: encrypt(t, plain, false, spoken), keys: Keys{Passphrase: says("")}, wantErr: "no passphrase was given", locked: true},
		"nobody to ask for the passphrase": {text: encrypt(t, plain, false, spoken), wantErr: "takes its passphrase", locked: true},
		"the person left":                  {text: encrypt(t, plain, false, spoken), keys: Keys{Passphrase: func() (string, error) { return "", left }}, wantErr: left.Error()},
		"no identity":                      {text: encrypt(t, plain, false, identity.Recipient()), wantErr: "takes an age identity", locked: true},
		"another's identity":               {text: encrypt(t, plain, false, identity.Recipient()), keys: Keys{Identities: []byte(stranger.String())}, wantErr: "isn't one of those", locked: true},
		"no identity file":                 {text: encrypt(t, plain, false, identity.Recipient()), keys: Keys{Identities: []byte("AGE-SECRET-KEY-oops")}, wantErr: "none of age's"},
		"a damaged file":                   {text: damaged, keys: Keys{Identities: []byte(identity.String())}, wantErr: "damaged"},
		"encrypted, but no bundle":         {text: encrypt(t, []byte("cluster: [SECRET"), false, identity.Recipient()), keys: Keys{Identities: []byte(identity.String())}, wantErr: "not YAML"},
		"nothing":                          {text: []byte(" \n"), wantErr: "empty"},
		"too long":                         {text: bytes.Repeat([]byte("x"), maxBundleSize+ageOverhead+1), wantErr: "longer than"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "bundle.yaml")
			if err := os.WriteFile(path, tc.text, 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := ReadFile(path, tc.keys)
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) || !strings.Contains(err.Error(), path) || errors.Is(err, ErrLocked) != tc.locked {
					t.Errorf("got error %v (locked %t), want one with %q and the file's name (locked %t)", err, errors.Is(err, ErrLocked), tc.wantErr, tc.locked)
				}
				if err != nil && (strings.Contains(err.Error(), "SECRET") || strings.Contains(err.Error(), "oops")) {
					t.Errorf("the error quotes what it read: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got.Hash() != bundle.Hash() || got.Encrypted != tc.encrypted || got.Exposed {
				t.Errorf("got %s, encrypted %t, exposed %t; want %s, %t, false", got, got.Encrypted, got.Exposed, bundle, tc.encrypted)
			}
		})
	}
}

func TestAFileThatOthersReadIsExposedUnlessEncrypted(t *testing.T) {
	t.Parallel()
	plain, err := generate(t).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	secret := encrypt(t, plain, false, identity.Recipient())
	for mode, want := range map[os.FileMode]bool{0o600: false, 0o400: false, 0o640: true, 0o604: true, 0o620: true} {
		for _, text := range [][]byte{plain, secret} {
			path := filepath.Join(t.TempDir(), "bundle.yaml")
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, mode); err != nil {
				t.Fatal(err)
			}
			got, err := ReadFile(path, Keys{Identities: []byte(identity.String())})
			if err != nil {
				t.Fatal(err)
			}
			if want := want && !got.Encrypted; got.Exposed != want {
				t.Errorf("mode %o, encrypted %t: exposed %t, want %t", mode, got.Encrypted, got.Exposed, want)
			}
		}
	}
	if _, err := ReadFile(t.TempDir(), Keys{}); err == nil || !strings.Contains(err.Error(), "folder") {
		t.Errorf("a folder: %v", err)
	}
}

func TestAKubernetesClientHasNoGroups(t *testing.T) {
	t.Parallel()
	bundle := generate(t)
	now := time.Now()
	pair, err := bundle.KubernetesClient(now, "ichor-direct", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(pair.Certificate)
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pair.CA)
	if _, err := certificate.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, CurrentTime: now}); err != nil {
		t.Error(err)
	}
	if len(certificate.Subject.Organization) != 0 || certificate.Subject.CommonName != "ichor-direct" || certificate.NotAfter.After(now.Add(time.Hour+time.Second)) {
		t.Errorf("subject %s, until %s", certificate.Subject, certificate.NotAfter)
	}
}
