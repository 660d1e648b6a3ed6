// SPDX-License-Identifier: Apache-2.0

package secretsbundle

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"go.yaml.in/yaml/v4"
)

// maxBundleSize bounds what is parsed: a bundle is about 8 KiB, a Secret holds at most 1 MiB.
const maxBundleSize = 1 << 20

// Bundle is the secrets of one cluster. It prints as its hash, whatever verb is used.
type Bundle struct {
	talos *secrets.Bundle
	hash  string
}

// Parse reads a bundle as "talosctl gen secrets" writes it. The error names what is missing or wrong and quotes nothing
// of the text.
func Parse(text []byte) (*Bundle, error) {
	if len(text) > maxBundleSize {
		return nil, fmt.Errorf("secrets bundle is %d bytes long, at most %d are read", len(text), maxBundleSize)
	}
	parsed := &secrets.Bundle{}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	if err := decoder.Decode(parsed); err != nil {
		// The decoder's own words quote the text.
		return nil, errors.New("secrets bundle is not YAML of the form that \"talosctl gen secrets\" writes")
	}
	return wrap(parsed)
}

// Generate makes a new bundle for a cluster that starts with the given Talos version. Version decides key types only:
// Talos: pkg/machinery/config/generate/secrets.
func Generate(contract *config.VersionContract, now time.Time) (*Bundle, error) {
	made, err := secrets.NewBundle(secrets.NewFixedClock(now.Add(-clockSkew)), contract)
	if err != nil {
		return nil, fmt.Errorf("make a secrets bundle: %w", err)
	}
	return wrap(made)
}

func wrap(talos *secrets.Bundle) (*Bundle, error) {
	talos.Clock = secrets.NewClock()
	if err := validate(talos); err != nil {
		return nil, err
	}
	hash, err := hashOf(talos)
	if err != nil {
		return nil, err
	}
	return &Bundle{talos: talos, hash: hash}, nil
}

func validate(talos *secrets.Bundle) error {
	if err := talos.Validate(); err != nil {
		return fmt.Errorf("secrets bundle is incomplete: %s", oneLine(err))
	}
	return nil
}

// oneLine flattens the machinery's list of errors for conditions.
func oneLine(err error) string {
	var wrapped interface{ WrappedErrors() []error }
	if !errors.As(err, &wrapped) {
		return err.Error()
	}
	var parts []string
	for _, each := range wrapped.WrappedErrors() {
		parts = append(parts, oneLine(each))
	}
	return strings.Join(parts, "; ")
}

// Marshal writes the bundle in the form that Parse reads. The result is secret.
func (b *Bundle) Marshal() ([]byte, error) {
	text, err := yaml.Marshal(b.talos)
	if err != nil {
		return nil, errors.New("write the secrets bundle as YAML: encoding failed")
	}
	return text, nil
}

// Talos is the bundle in the machinery's type, for rendering. Callers must not change it.
func (b *Bundle) Talos() *secrets.Bundle { return b.talos }

// Hash is the hexadecimal SHA-256 over the public certificates of the bundle's certificate authorities and a keyed digest
// of everything else. It identifies the bundle and is no secret.
func (b *Bundle) Hash() string { return b.hash }

// String is the hash in short, so that a bundle that ends up in a message gives nothing away.
func (b *Bundle) String() string { return "secrets bundle " + b.hash[:12] }

// GoString is String.
func (b *Bundle) GoString() string { return b.String() }

// Format is String for every verb.
func (b *Bundle) Format(state fmt.State, _ rune) { _, _ = state.Write([]byte(b.String())) }

// MarshalJSON is refused: a bundle is written by Marshal alone, where it is meant.
func (b *Bundle) MarshalJSON() ([]byte, error) {
	return nil, errors.New("a secrets bundle is not written as JSON")
}

func hashOf(talos *secrets.Bundle) (string, error) {
	sum, certs := sha256.New(), talos.Certs
	for _, authority := range []struct {
		name string
		pair *x509.PEMEncodedCertificateAndKey
	}{
		{"talos", certs.OS},
		{"kubernetes", certs.K8s},
		{"aggregator", certs.K8sAggregator},
		{"etcd", certs.Etcd},
	} {
		block, _ := pem.Decode(authority.pair.Crt)
		if block == nil {
			return "", fmt.Errorf("secrets bundle: certificate of the %s authority is not PEM", authority.name)
		}
		fmt.Fprintf(sum, "%s %d\n", authority.name, len(block.Bytes))
		sum.Write(block.Bytes)
	}
	sum.Write(secretDigest(talos))
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// secretDigest is an HMAC-SHA256 over the bundle's keys and tokens. Its key is the cluster secret, 32 random bytes, so that
// the digest can be shown and no token be guessed by it, however short.
func secretDigest(talos *secrets.Bundle) []byte {
	sum := hmac.New(sha256.New, []byte(talos.Cluster.Secret))
	for _, part := range []struct {
		name  string
		value []byte
	}{
		{"ichor secrets bundle", []byte("1")},
		{"cluster ID", []byte(talos.Cluster.ID)},
		{"talos key", talos.Certs.OS.Key},
		{"kubernetes key", talos.Certs.K8s.Key},
		{"aggregator key", talos.Certs.K8sAggregator.Key},
		{"etcd key", talos.Certs.Etcd.Key},
		{"service account key", talos.Certs.K8sServiceAccount.Key},
		{"bootstrap token", []byte(talos.Secrets.BootstrapToken)},
		{"trustd token", []byte(talos.TrustdInfo.Token)},
		{"secretbox key", []byte(talos.Secrets.SecretboxEncryptionSecret)},
		{"AES-CBC key", []byte(talos.Secrets.AESCBCEncryptionSecret)},
	} {
		fmt.Fprintf(sum, "%s %d\n", part.name, len(part.value))
		sum.Write(part.value)
	}
	return sum.Sum(nil)
}
