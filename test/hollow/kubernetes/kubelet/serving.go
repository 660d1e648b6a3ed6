// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"crypto/tls"
	stdx509 "crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"maesh.dev/ichor/test/hollow/kubernetes/pki"
)

const (
	servingFile = "kubelet-server-current.pem"
	// servingPause is how long a kubelet waits after a request that was denied, before it asks anew.
	servingPause = time.Minute
)

// serving is the state of the serving certificate.
type serving struct {
	current  *stdx509.Certificate
	rotation *rotation
	// after is when to ask again.
	after time.Time
}

// rotateServing gets and renews the serving certificate of a kubelet that is told to (rotate-server-certificates). That
// there is none yet stops nothing else: a kubelet without one can't be reached, and is a Node all the same. It asks for
// what it writes into its Node's addresses (Kubernetes: pkg/kubelet/certificate/kubelet.go).
func (k *Kubelet) rotateServing(ctx context.Context) error {
	s := &k.serving
	if !k.options.ServingCertificate || time.Now().Before(s.after) {
		return nil
	}

	if s.current == nil {
		s.current = k.loadServing()
	}

	if s.rotation == nil && s.current != nil && time.Now().Before(renewalTime(s.current)) {
		return nil
	}

	content, err := k.ask(ctx, k.client, &s.rotation, wish{
		signer: certificatesv1.KubeletServingSignerName,
		usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
		names:  []string{k.options.NodeName}, addresses: []net.IP{k.options.Address.AsSlice()},
	})
	if err != nil {
		s.after = time.Now().Add(servingPause)

		return err
	}

	if content == nil {
		return nil
	}

	parsed, err := tls.X509KeyPair(content, content)
	if err != nil {
		return fmt.Errorf("parse the signed serving certificate of node %s: %w", k.options.NodeName, err)
	}

	if _, err = pki.Folder(k.pkiDir()).Write(servingFile, content); err != nil {
		return fmt.Errorf("store serving certificate of node %s: %w", k.options.NodeName, err)
	}

	s.current = parsed.Leaf
	k.options.Logger.Info("kubelet serving certificate issued", "node", k.options.NodeName)

	return nil
}

// loadServing reads the stored certificate if it is for what the node is called and reached at.
func (k *Kubelet) loadServing() *stdx509.Certificate {
	path := filepath.Join(k.pkiDir(), servingFile)

	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	stored, pairErr := tls.X509KeyPair(content, content)
	if err = errors.Join(err, pairErr); err == nil {
		err = errors.Join(stored.Leaf.VerifyHostname(k.options.NodeName), stored.Leaf.VerifyHostname(k.options.Address.String()))
	}

	if err != nil {
		k.options.Logger.Info("kubelet serving certificate is useless, asking for another", "node", k.options.NodeName, "reason", err)

		return nil
	}

	return stored.Leaf
}
