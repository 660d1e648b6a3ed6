// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/siderolabs/talos/pkg/machinery/config/config"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const kubeSystem = "kube-system"

// maxManifestDocuments bounds one inline manifest.
const maxManifestDocuments = 10_000

// Manifests are the objects Talos applies once the API is up: the bootstrap token, the bindings that let kubelets ask for
// certificates, the in-cluster kubeconfig, the role that lets nodes read endpoints, and the inline manifests of the
// configuration, in this order (Talos: k8s/manifest.go). CoreDNS, kube-proxy and flannel are left out, for they would
// do nothing here; manifests behind a URL aren't fetched.
func Manifests(cluster config.ClusterConfig) ([]*unstructured.Unstructured, error) {
	kubeconfig, err := inClusterKubeconfig(cluster)
	if err != nil {
		return nil, err
	}

	typed := []runtime.Object{
		bootstrapToken(cluster.Token()),
		binding("system-bootstrap-node-bootstrapper", "system:node-bootstrapper", "system:bootstrappers:nodes", "system:nodes"),
		binding("system-bootstrap-approve-node-client-csr",
			"system:certificates.k8s.io:certificatesigningrequests:nodeclient", "system:bootstrappers:nodes"),
		binding("system-bootstrap-node-renewal",
			"system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", "system:nodes"),
		kubeconfig,
		endpointReader(),
		binding(talosNodes, talosNodes, "system:nodes"),
	}

	var objects []*unstructured.Unstructured

	for _, object := range typed {
		content, convertErr := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if convertErr != nil {
			return nil, fmt.Errorf("convert bootstrap manifest: %w", convertErr)
		}

		delete(content, "status")
		unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")

		objects = append(objects, &unstructured.Unstructured{Object: content})
	}

	for _, inline := range cluster.InlineManifests() {
		parsed, parseErr := parse(inline.Contents())
		if parseErr != nil {
			return nil, fmt.Errorf("inline manifest %q: %w", inline.Name(), parseErr)
		}

		objects = append(objects, parsed...)
	}

	return objects, nil
}

func bootstrapToken(token config.Token) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-" + token.ID(), Namespace: kubeSystem},
		Type:       "bootstrap.kubernetes.io/token",
		StringData: map[string]string{
			"token-id":                       token.ID(),
			"token-secret":                   token.Secret(),
			"usage-bootstrap-authentication": "true",
			"auth-extra-groups":              "system:bootstrappers:nodes",
		},
	}
}

func binding(name, role string, groups ...string) *rbacv1.ClusterRoleBinding {
	b := &rbacv1.ClusterRoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
	}

	for _, group := range groups {
		b.Subjects = append(b.Subjects, rbacv1.Subject{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: group})
	}

	return b
}

const talosNodes = "system:talos-nodes"

func endpointReader() *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole"},
		ObjectMeta: metav1.ObjectMeta{Name: talosNodes},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"},
			Verbs: []string{"get", "list", "watch"},
		}},
	}
}

func inClusterKubeconfig(cluster config.ClusterConfig) (*corev1.ConfigMap, error) {
	const (
		name   = "local"
		user   = "service-account"
		folder = "/var/run/secrets/kubernetes.io/serviceaccount/"
	)

	text, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: cluster.Endpoint().String(), CertificateAuthority: folder + "ca.crt"}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{user: {TokenFile: folder + "token"}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: user}},
		CurrentContext: name,
	})
	if err != nil {
		return nil, fmt.Errorf("write in-cluster kubeconfig: %w", err)
	}

	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: "kubeconfig-in-cluster", Namespace: kubeSystem},
		Data:       map[string]string{"kubeconfig": string(text)},
	}, nil
}

// parse reads the YAML documents of an inline manifest.
func parse(text string) ([]*unstructured.Unstructured, error) {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader([]byte(text)), 4096)

	var objects []*unstructured.Unstructured

	for range maxManifestDocuments {
		content := map[string]any{}

		err := decoder.Decode(&content)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}

		if err != nil {
			return nil, fmt.Errorf("read document %d: %w", len(objects)+1, err)
		}

		if len(content) > 0 {
			objects = append(objects, &unstructured.Unstructured{Object: content})
		}
	}

	return nil, fmt.Errorf("more than %d documents", maxManifestDocuments)
}
