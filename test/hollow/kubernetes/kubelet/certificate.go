// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	stdx509 "crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"maesh.dev/ichor/test/hollow/kubernetes/connection"
	"maesh.dev/ichor/test/hollow/kubernetes/pki"
)

const (
	certificateFile = "kubelet-client-current.pem"
	// requestPatience is how long a certificate request may wait for its signature before it is made anew.
	requestPatience = 15 * time.Minute
	// signedFirst and signedLongest pace the looks whether it is signed.
	signedFirst   = 200 * time.Millisecond
	signedLongest = 3 * time.Second
)

// certificate is the node's client certificate, read by handshakes and replaced by rotations.
type certificate struct {
	mu      sync.Mutex
	current *tls.Certificate
}

func (c *certificate) get() (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.current == nil {
		return nil, errors.New("the node has no client certificate yet")
	}

	return c.current, nil
}

func (c *certificate) set(certificate tls.Certificate) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.current = &certificate
}

// rotation is a certificate request under way.
type rotation struct {
	name    string
	key     []byte
	expires time.Time
}

// loadCertificate takes the stored certificate if it is for this node, unexpired and signed by an accepted CA; any other
// one is thrown away (Talos: k8s/kubelet_service.go refreshKubeletCerts).
func (k *Kubelet) loadCertificate() (found bool, err error) {
	path := filepath.Join(k.pkiDir(), certificateFile)

	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}

	if err != nil {
		return false, fmt.Errorf("read client certificate of node %s: %w", k.options.NodeName, err)
	}

	stored, err := tls.X509KeyPair(content, content)
	if err == nil {
		err = k.verify(stored.Leaf)
	}

	if err != nil {
		k.options.Logger.Info("kubelet certificate is useless, removing it", "node", k.options.NodeName, "reason", err)

		if err = os.RemoveAll(k.pkiDir()); err != nil {
			return false, fmt.Errorf("remove client certificate of node %s: %w", k.options.NodeName, err)
		}

		return false, nil
	}

	k.certificate.set(stored)

	return true, nil
}

func (k *Kubelet) verify(leaf *stdx509.Certificate) error {
	if want := userName(k.options.NodeName); leaf.Subject.CommonName != want {
		return fmt.Errorf("it is for %s, not for %s", leaf.Subject.CommonName, want)
	}

	pool, err := pki.Pool(k.options.CAs)
	if err != nil {
		return err
	}

	_, err = leaf.Verify(stdx509.VerifyOptions{Roots: pool, KeyUsages: []stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth}})

	return err
}

// bootstrap asks for the first certificate with the cluster's token. It is found once the request is signed.
func (k *Kubelet) bootstrap(ctx context.Context) (found bool, err error) {
	conn, err := connection.New(k.options.Server, k.options.CAs, "kubelet", connection.Identity{Token: k.options.Token})
	if err != nil {
		return false, err
	}

	defer conn.Close()

	client, err := kubernetes.NewForConfigAndClient(conn.Config, conn.HTTP)
	if err != nil {
		return false, fmt.Errorf("make bootstrap client of node %s: %w", k.options.NodeName, err)
	}

	// When a whole fleet asks at once, the signer needs a while; asking ever more often doesn't help it.
	for pause := signedFirst; ; pause = min(2*pause, signedLongest) {
		if found, err = k.request(ctx, client); err != nil || found {
			return found, err
		}

		timer := time.NewTimer(pause)

		select {
		case <-ctx.Done():
			timer.Stop()
			// The request stays; the next round looks at it again.
			return false, fmt.Errorf("wait for the certificate request of node %s to be signed: %w", k.options.NodeName, ctx.Err())
		case <-timer.C:
		}
	}
}

// rotate renews the certificate when most of its life is over.
func (k *Kubelet) rotate(ctx context.Context) error {
	current, err := k.certificate.get()
	if err != nil {
		return err
	}

	if k.rotation == nil && time.Now().Before(renewalTime(current.Leaf)) {
		return nil
	}

	found, err := k.request(ctx, k.client)
	if err != nil {
		return err
	}

	if found {
		// Connections carry the identity they were opened with.
		k.connection.Close()
		k.options.Logger.Info("kubelet certificate renewed", "node", k.options.NodeName)
	}

	return nil
}

// renewalTime is after 80 % of the certificate's life, as kubelets do (they take 70 to 90 %).
func renewalTime(leaf *stdx509.Certificate) time.Time {
	return leaf.NotBefore.Add(leaf.NotAfter.Sub(leaf.NotBefore) * 8 / 10)
}

// request asks for the client certificate; it is found once the request is signed.
func (k *Kubelet) request(ctx context.Context, client kubernetes.Interface) (found bool, err error) {
	content, err := k.ask(ctx, client, &k.rotation, wish{
		signer: certificatesv1.KubeAPIServerClientKubeletSignerName,
		usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
	})
	if err != nil || content == nil {
		return false, err
	}

	return true, k.store(content)
}

// wish is what a certificate is asked for.
type wish struct {
	signer    string
	usages    []certificatesv1.KeyUsage
	names     []string
	addresses []net.IP
}

// ask makes a certificate request, or looks whether the one under way is signed: then it returns the certificate with its
// key.
func (k *Kubelet) ask(ctx context.Context, client kubernetes.Interface, under **rotation, wanted wish) (content []byte, err error) {
	if *under == nil || time.Now().After((*under).expires) {
		*under, err = k.newRequest(ctx, client, wanted)

		return nil, err
	}

	request, err := client.CertificatesV1().CertificateSigningRequests().Get(ctx, (*under).name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		*under = nil

		return nil, nil
	}

	if err != nil {
		return nil, fmt.Errorf("get certificate request of node %s: %w", k.options.NodeName, err)
	}

	for _, condition := range request.Status.Conditions {
		if condition.Type == certificatesv1.CertificateDenied || condition.Type == certificatesv1.CertificateFailed {
			*under = nil

			return nil, fmt.Errorf("certificate request %s of node %s: %s: %s",
				request.Name, k.options.NodeName, condition.Reason, condition.Message)
		}
	}

	if len(request.Status.Certificate) == 0 {
		return nil, nil
	}

	content = bytes.Join([][]byte{bytes.TrimSpace(request.Status.Certificate), (*under).key}, []byte("\n"))
	*under = nil

	return content, nil
}

func (k *Kubelet) newRequest(ctx context.Context, client kubernetes.Interface, wanted wish) (*rotation, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key of node %s: %w", k.options.NodeName, err)
	}

	keyDER, err := stdx509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode key of node %s: %w", k.options.NodeName, err)
	}

	csr, err := stdx509.CreateCertificateRequest(rand.Reader, &stdx509.CertificateRequest{
		Subject:  pkix.Name{CommonName: userName(k.options.NodeName), Organization: []string{"system:nodes"}},
		DNSNames: wanted.names, IPAddresses: wanted.addresses,
	}, key)
	if err != nil {
		return nil, fmt.Errorf("make certificate request of node %s: %w", k.options.NodeName, err)
	}

	created, err := client.CertificatesV1().CertificateSigningRequests().Create(ctx, &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "csr-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: csr}),
			SignerName: wanted.signer,
			Usages:     wanted.usages,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("ask signer %s for a certificate of node %s: %w", wanted.signer, k.options.NodeName, err)
	}

	return &rotation{
		name: created.Name, expires: time.Now().Add(requestPatience),
		key: pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}),
	}, nil
}

// store keeps a signed certificate with its key and uses it from now on.
func (k *Kubelet) store(content []byte) error {
	parsed, err := tls.X509KeyPair(content, content)
	if err != nil {
		return fmt.Errorf("parse the signed certificate of node %s: %w", k.options.NodeName, err)
	}

	if _, err = pki.Folder(k.pkiDir()).Write(certificateFile, content); err != nil {
		return fmt.Errorf("store client certificate of node %s: %w", k.options.NodeName, err)
	}

	k.certificate.set(parsed)

	return nil
}

func userName(nodeName string) string { return "system:node:" + nodeName }
