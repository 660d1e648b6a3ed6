// SPDX-License-Identifier: Apache-2.0

// Package artifacts holds the manifests that install Ichor into a cluster, the audit policies and the examples. It
// owns the files and their order; it never talks to a cluster.
package artifacts

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

//go:embed install audit examples
var files embed.FS

// KubeAPIServerAuditPolicy is the audit policy for the kube-apiserver.
//
//go:embed audit/kube-apiserver.yaml
var KubeAPIServerAuditPolicy []byte

// AuditPolicy is the audit policy for ichor-apiserver.
//
//go:embed audit/ichor-apiserver.yaml
var AuditPolicy []byte

// ArgoCDHealth says to Argo CD, FluxHealth to Flux, how objects of Ichor are.
var (
	//go:embed argocd/health.yaml
	ArgoCDHealth []byte
	//go:embed flux/health.yaml
	FluxHealth []byte
)

// Names that the manifests give, for code that refers to what they install.
const (
	// Namespace holds everything namespaced.
	Namespace = "ichor-system"
	// APIServerName is the name of ichor-apiserver's ServiceAccount and Service.
	APIServerName = "ichor-apiserver"
	// ControllerName is the name of ichor-controller's ServiceAccount.
	ControllerName = "ichor-controller"
	// APIServiceName is the name of the APIService.
	APIServiceName = "v1alpha1.ichor.maesh.dev"
	// ServingSecretName is the Secret in which ichor-controller keeps the serving certificate of ichor-apiserver.
	ServingSecretName = "ichor-apiserver-tls"
	// RoleViewer, RoleOperator and RoleAdmin are the ClusterRoles for people.
	RoleViewer   = "ichor-viewer"
	RoleOperator = "ichor-operator"
	RoleAdmin    = "ichor-admin"
)

// Install returns the objects of the folder install, in the order in which they have to be applied. Each call decodes
// anew, so a caller may change what it gets.
func Install() ([]*unstructured.Unstructured, error) { return objects("install") }

// Examples returns the objects of the folder examples that are whole (approvals are patches and left out).
func Examples() ([]*unstructured.Unstructured, error) {
	all, err := objects("examples")
	if err != nil {
		return nil, err
	}
	var whole []*unstructured.Unstructured
	for _, o := range all {
		if o.GetKind() != "" {
			whole = append(whole, o)
		}
	}
	return whole, nil
}

// objects decodes every document of a folder's files, by file name and then by place.
func objects(folder string) ([]*unstructured.Unstructured, error) {
	entries, err := fs.ReadDir(files, folder)
	if err != nil {
		return nil, fmt.Errorf("read artifacts %s: %w", folder, err)
	}
	var out []*unstructured.Unstructured
	for _, entry := range entries {
		name := path.Join(folder, entry.Name())
		data, err := files.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read artifact %s: %w", name, err)
		}
		decoded, err := Decode(data)
		if err != nil {
			return nil, fmt.Errorf("artifact %s: %w", name, err)
		}
		out = append(out, decoded...)
	}
	return out, nil
}

// Decode reads the documents of a YAML file; empty ones are left out.
func Decode(data []byte) ([]*unstructured.Unstructured, error) {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	var out []*unstructured.Unstructured
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		switch {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, fmt.Errorf("document %d: %w", len(out)+1, err)
		case len(object.Object) > 0:
			out = append(out, object)
		}
	}
}
