// SPDX-License-Identifier: Apache-2.0

// Package people makes kubeconfigs for a local stack: client certificates for persons, through a certificate request
// that Kubernetes signs, and tokens for ServiceAccounts, through a token request. Nobody gets more than his bindings.
package people

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"maesh.dev/ichor/test/localstack/serving"
)

const (
	// TokenLife is how long the token of a ServiceAccount is good.
	TokenLife = 24 * time.Hour
	// signEvery and signFor bound the wait for the kube-controller-manager to sign.
	signEvery = 250 * time.Millisecond
	signFor   = time.Minute
)

// Cluster is how the cluster is reached.
type Cluster struct {
	Name, Server string
	// CA is the PEM of the certificate authority of the kube-apiserver.
	CA []byte
}

// ClusterOf reads the cluster of a kubeconfig's current context.
func ClusterOf(name string, kubeconfig []byte) (Cluster, error) {
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return Cluster{}, fmt.Errorf("administrator's kubeconfig: %w", err)
	}
	return Cluster{Name: name, Server: config.Host, CA: config.CAData}, nil
}

// Kubeconfig is the file for a user.
func (c Cluster) Kubeconfig(user string, info *clientcmdapi.AuthInfo) ([]byte, error) {
	at := user + "@" + c.Name
	data, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{c.Name: {Server: c.Server, CertificateAuthorityData: c.CA}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{at: info},
		Contexts:       map[string]*clientcmdapi.Context{at: {Cluster: c.Name, AuthInfo: at}},
		CurrentContext: at,
	})
	if err != nil {
		return nil, fmt.Errorf("kubeconfig of %s: %w", user, err)
	}
	return data, nil
}

// Person makes a kubeconfig with a client certificate for a user.
func Person(ctx context.Context, admin kubernetes.Interface, cluster Cluster, user string) ([]byte, error) {
	request, key, err := serving.Request(user)
	if err != nil {
		return nil, err
	}
	certificate, err := sign(ctx, admin, user, request)
	if err != nil {
		return nil, fmt.Errorf("client certificate of %s: %w", user, err)
	}
	return cluster.Kubeconfig(user, &clientcmdapi.AuthInfo{ClientCertificateData: certificate, ClientKeyData: key})
}

// sign has Kubernetes sign a certificate request, which it makes, approves and removes again.
func sign(ctx context.Context, admin kubernetes.Interface, user string, request []byte) ([]byte, error) {
	sum := sha256.Sum256(request)
	name := "localstack-" + user + "-" + hex.EncodeToString(sum[:4])
	requests := admin.CertificatesV1().CertificateSigningRequests()
	csr, err := requests.Create(ctx, &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: request, SignerName: certificatesv1.KubeAPIServerClientSignerName,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue,
		Reason: "LocalStack", Message: "a person of the local stack",
	})
	if _, err := requests.UpdateApproval(ctx, name, csr, metav1.UpdateOptions{}); err != nil {
		return nil, err
	}
	last := "it is not signed; does a kube-controller-manager run?"
	err = wait.PollUntilContextTimeout(ctx, signEvery, signFor, true, func(ctx context.Context) (bool, error) {
		current, err := requests.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			last = err.Error()
			return false, nil
		}
		csr = current
		return len(csr.Status.Certificate) > 0, nil
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, last)
	}
	if err := requests.Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	return csr.Status.Certificate, nil
}

// Token asks for a token of a ServiceAccount, and tells when a new one should be asked for. The account may be a new
// one that the kube-apiserver has not seen yet.
func Token(ctx context.Context, admin kubernetes.Interface, namespace, account string) (token string, renew time.Duration, err error) {
	seconds := int64(TokenLife / time.Second)
	var granted *authenticationv1.TokenRequest
	var last error
	err = wait.PollUntilContextTimeout(ctx, signEvery, signFor, true, func(ctx context.Context) (bool, error) {
		granted, last = admin.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account, &authenticationv1.TokenRequest{
			Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds},
		}, metav1.CreateOptions{})
		return last == nil, nil
	})
	if err != nil {
		return "", 0, fmt.Errorf("token of ServiceAccount %s/%s: %w", namespace, account, errors.Join(err, last))
	}
	return granted.Status.Token, time.Until(granted.Status.ExpirationTimestamp.Time) / 2, nil
}

// Account makes a kubeconfig that reads its token from a file, so that the token can be renewed.
func (c Cluster) Account(account, tokenFile string) ([]byte, error) {
	return c.Kubeconfig(account, &clientcmdapi.AuthInfo{TokenFile: tokenFile})
}
