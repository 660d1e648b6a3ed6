// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// OwnCluster is how to reach the cluster that Ichor runs in: by the kubeconfig if one is given, else as the pod's
// ServiceAccount.
func OwnCluster(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("find the cluster: no --kubeconfig is given and this is no pod: %w", err)
		}
		return config, nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w", kubeconfig, err)
	}
	return config, nil
}

// FromKubeconfig is how to reach the cluster that the text of a kubeconfig describes. The error quotes nothing of it.
func FromKubeconfig(text []byte) (*rest.Config, error) {
	config, err := clientcmd.RESTConfigFromKubeConfig(text)
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig can't be used (%d bytes)", len(text))
	}
	return config, nil
}

// readyTimeout bounds one look at /readyz.
const readyTimeout = 5 * time.Second

// Ready asks the Kubernetes API whether it is ready to serve.
func Ready(ctx context.Context, client kubernetes.Interface) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	text, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Raw()
	if err == nil {
		return nil
	}
	if failed := failedChecks(string(text)); len(failed) > 0 {
		return fmt.Errorf("the Kubernetes API is not ready: %s", strings.Join(failed, ", "))
	}
	return fmt.Errorf("the Kubernetes API is not ready: %w", err)
}

// failedChecks are the names of the checks that /readyz marks as failed, one a line: "[-]etcd failed: reason withheld".
func failedChecks(text string) []string {
	var failed []string
	for line := range strings.Lines(text) {
		if rest, found := strings.CutPrefix(line, "[-]"); found {
			name, _, _ := strings.Cut(rest, " ")
			failed = append(failed, strings.TrimSpace(name))
		}
	}
	return failed
}
