// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/role"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/transport"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
	"maesh.dev/ichor/pkg/kube"
	"maesh.dev/ichor/pkg/secretsbundle"
	"maesh.dev/ichor/pkg/talos"
)

// adminTTL is how long the talosconfig of the first administrator is good for, as Talos' own default.
const adminTTL = 365 * 24 * time.Hour

// openKubernetes waits for the Kubernetes API and puts into it what Ichor needs to start: its namespace, the secrets
// bundle, and the certificate that its API server reaches etcd with.
func (r *run) openKubernetes(ctx context.Context) (Access, error) {
	access := Access{}
	err := r.withNode(ctx, func(ctx context.Context, node talos.ConfiguredNode) (bool, string, error) {
		kubeconfig, err := node.Kubeconfig(ctx)
		if err != nil {
			return false, err.Error(), nil
		}
		access.Kubeconfig = kubeconfig
		return true, "", nil
	})
	if err != nil {
		return access, err
	}
	clients, err := r.connect(access.Kubeconfig)
	if err != nil {
		return access, err
	}
	var etcd secretsbundle.ClientPair
	err = r.poll(ctx, func(ctx context.Context) (bool, string, error) {
		if err := clients.ready(ctx); err != nil {
			return false, err.Error(), nil
		}
		if etcd, err = r.seed(ctx, clients.kubernetes); err != nil && !isFinal(err) {
			return false, err.Error(), nil
		}
		return err == nil, "", err
	})
	if err != nil {
		return access, err
	}
	r.tell("the Kubernetes API is ready")
	access.EtcdCA, access.EtcdCert, access.EtcdKey = etcd.CA, etcd.Certificate, etcd.Key
	access.TalosConfig, err = r.bundle.TalosConfig(r.now(), r.cluster.Name, []string{r.reached.String()}, role.Admin, adminTTL)
	return access, err
}

// clients reach the new cluster as its administrator.
type clients struct {
	kubernetes kubernetes.Interface
	ichor      versioned.Interface
	// ready asks whether the Kubernetes API is ready to serve.
	ready func(context.Context) error
}

func connect(kubeconfig []byte, wrap transport.WrapperFunc) (*clients, error) {
	config, err := kube.FromKubeconfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	if wrap != nil {
		config.Wrap(wrap)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for the new cluster: %w", err)
	}
	ichor, err := versioned.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for Ichor's API: %w", err)
	}
	return &clients{kubernetes: client, ichor: ichor, ready: func(ctx context.Context) error { return kube.Ready(ctx, client) }}, nil
}

// isFinal tells whether trying again can't help.
func isFinal(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsUnauthorized(err) || apierrors.IsBadRequest(err) ||
		errors.Is(err, secretsbundle.ErrInvalid) || errors.Is(err, secretsbundle.ErrChanged)
}

// seed makes what isn't there, and checks what is.
func (r *run) seed(ctx context.Context, client kubernetes.Interface) (secretsbundle.ClientPair, error) {
	ref := r.cluster.Spec.SecretsRef
	for _, name := range []string{v1alpha1.SystemNamespace, ref.Namespace} {
		_, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return secretsbundle.ClientPair{}, fmt.Errorf("create namespace %s: %w", name, err)
		}
	}
	store := secretsbundle.Store{Secrets: client.CoreV1()}
	err := store.Create(ctx, ref, r.cluster.Name, r.bundle)
	if errors.Is(err, secretsbundle.ErrExists) {
		err = r.checkStored(ctx, store, ref)
	}
	if err != nil {
		return secretsbundle.ClientPair{}, err
	}
	return store.EnsureEtcdClient(ctx, r.bundle, r.now())
}

func (r *run) checkStored(ctx context.Context, store secretsbundle.Store, ref v1alpha1.SecretReference) error {
	stored, err := store.Load(ctx, ref)
	if err != nil {
		return err
	}
	if stored.Hash() != r.bundle.Hash() {
		return fmt.Errorf("%w: Secret %s/%s is not the bundle of the state directory", secretsbundle.ErrChanged, ref.Namespace, ref.Name)
	}
	return nil
}
