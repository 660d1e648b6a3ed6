// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/apiserver"
	"maesh.dev/ichor/artifacts"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/test/bench/api/rival"
	"maesh.dev/ichor/test/localstack/install"
)

// side is one of the two that are compared.
type side struct {
	name, group string
	// stored is where the objects are in etcd.
	stored string
	// approval is what is added to a machine's path to approve it.
	approval string
	install  func(ctx context.Context, w *world) error
}

func newOurs() *side {
	return &side{name: "ichor", group: v1alpha1.GroupName, stored: apiserver.EtcdPrefix, approval: "/approval", install: installOurs}
}

// newRival is the custom resources; counts serves the gates with a race too.
func newRival(counts bool) *side {
	return &side{name: "crd", group: rival.Group, stored: "/registry/" + rival.Group, install: func(ctx context.Context, w *world) error {
		return installRival(ctx, w, counts)
	}}
}

func (s *side) machines() string { return "/apis/" + s.group + "/v1alpha1/talosmachines" }

func (s *side) clusters() string { return "/apis/" + s.group + "/v1alpha1/talosclusters" }

// installOurs starts ichor-apiserver as the manifests do, and puts it behind the aggregation layer.
func installOurs(ctx context.Context, w *world) error {
	if err := install.Accounts(ctx, w.admin); err != nil {
		return err
	}
	for user, role := range map[string]string{operatorUser: artifacts.RoleOperator, controllerUser: artifacts.ControllerName} {
		if err := install.Bind(ctx, w.admin, user, role); err != nil {
			return err
		}
	}
	account := "system:serviceaccount:" + artifacts.Namespace + ":" + artifacts.APIServerName
	kubeconfig, err := w.kubeconfig(account, "system:serviceaccounts", "system:serviceaccounts:"+artifacts.Namespace)
	if err != nil {
		return err
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	w.ichor = w.start("ichor-apiserver", filepath.Join(w.binaries, "ichor-apiserver"),
		"--bind-address=127.0.0.1", "--secure-port="+port,
		"--tls-cert-file="+w.path(servingName+".crt"), "--tls-private-key-file="+w.path(servingName+".key"),
		"--kubeconfig="+kubeconfig, "--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig,
		"--etcd-servers="+w.etcdURL(), "--etcd-prefix="+apiserver.EtcdPrefix,
		"--etcd-compaction-interval=0", // the kube-apiserver compacts
		"--shutdown-delay-duration=0s", "--shutdown-watch-termination-grace-period=0s")
	w.ichor.url = "https://127.0.0.1:" + port
	n, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	if err := install.API(ctx, w.admin, n); err != nil {
		return err
	}
	if err := w.trustServing(ctx); err != nil {
		return err
	}
	return w.ichor.await(ctx, func(ctx context.Context) error { return install.WaitAvailable(ctx, w.admin) })
}

// servingName is the DNS name by which the aggregation layer knows ichor-apiserver.
const servingName = artifacts.APIServerName + "." + artifacts.Namespace + ".svc"

// trustServing tells the aggregation layer whom to trust, which is the controller's part otherwise.
func (w *world) trustServing(ctx context.Context) error {
	client, err := dynamic.NewForConfig(w.admin)
	if err != nil {
		return fmt.Errorf("client for the APIService: %w", err)
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"caBundle": w.serving.pem}})
	if err != nil {
		return err
	}
	services := schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
	if _, err := client.Resource(services).Patch(ctx, artifacts.APIServiceName, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("set the authority of the APIService: %w", err)
	}
	return nil
}

// installRival makes the custom resources and starts their webhook.
func installRival(ctx context.Context, w *world, counts bool) error {
	definitions, err := rival.Definitions()
	if err != nil {
		return err
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	url := "https://127.0.0.1:" + port
	objects := append(definitions, rival.Roles()...)
	objects = append(objects, rival.Policy()...)
	objects = append(objects, rival.Webhooks(url, w.serving.pem), rival.Binding(rival.OperatorRole, operatorUser), rival.Binding(rival.ControllerRole, controllerUser))
	client, err := dynamic.NewForConfig(w.admin)
	if err != nil {
		return fmt.Errorf("client for the custom resources: %w", err)
	}
	for _, object := range objects {
		if err := create(ctx, client, object); err != nil {
			return err
		}
	}
	admin, err := w.callers(w.adminPair, 1)
	if err != nil {
		return err
	}
	served, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	for _, resource := range []string{"talosmachines", "talosclusters"} {
		if err := until(served, resource+" are served", func(ctx context.Context) error {
			_, err := admin[0].call(ctx, http.MethodGet, "/apis/"+rival.Group+"/"+rival.Version+"/"+resource, nil)
			return err
		}); err != nil {
			return err
		}
	}
	return w.startWebhook(ctx, port, url, counts)
}

func (w *world) startWebhook(ctx context.Context, port, url string, counts bool) error {
	kubeconfig, err := w.kubeconfig(webhookUser, "system:serviceaccounts", "system:serviceaccounts:rival-system")
	if err != nil {
		return err
	}
	if w.webhook, err = w.itself("webhook", "-address=127.0.0.1:"+port, "-cert="+w.path("webhook.crt"), "-key="+w.path("webhook.key"),
		"-kubeconfig="+kubeconfig, "-counts="+strconv.FormatBool(counts)); err != nil {
		return err
	}
	w.webhook.url = url
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(w.serving.pem)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	w.transports = append(w.transports, transport)
	health := &caller{&http.Client{Transport: transport}, url}
	return w.webhook.await(ctx, func(ctx context.Context) error {
		_, err := health.call(ctx, http.MethodGet, "/healthz", nil)
		return err
	})
}

// resources are the kinds that the rival is made of.
var resources = map[string]string{
	"CustomResourceDefinition": "customresourcedefinitions", "ClusterRole": "clusterroles", "ClusterRoleBinding": "clusterrolebindings",
	"ValidatingAdmissionPolicy": "validatingadmissionpolicies", "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
	"ValidatingWebhookConfiguration": "validatingwebhookconfigurations",
}

// create makes an object; a kube-apiserver that has just started may refuse for a while.
func create(ctx context.Context, client dynamic.Interface, object *unstructured.Unstructured) error {
	kind := object.GroupVersionKind()
	resource := schema.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: resources[kind.Kind]}
	if _, err := client.Resource(resource).Create(ctx, object, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make %s %s: %w", kind.Kind, object.GetName(), err)
	}
	return nil
}
