// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"strings"
	"testing"
)

// roles asks the cluster itself what people and Ichor's own components may do.
func roles(t *testing.T, s *suite) {
	controller := []string{"--as", "system:serviceaccount:ichor-system:ichor-controller"}
	tests := []struct {
		who, verb, resource string
		want                bool
	}{
		{"viewer", "list", "talosmachines.ichor.maesh.dev", true},
		{"viewer", "patch", "talosmachines.ichor.maesh.dev", false},
		{"viewer", "approve", "talosmachines.ichor.maesh.dev --subresource=approval", false},
		{"viewer", "get", "secrets --namespace=ichor-system", false},
		{"operator", "approve", "talosmachines.ichor.maesh.dev --subresource=approval", true},
		{"operator", "create", "talosclusters.ichor.maesh.dev", false},
		{"operator", "configure", "talosclusters.ichor.maesh.dev --subresource=cni", false},
		{"operator", "get", "secrets --namespace=ichor-system", false},
		{"controller", "update", "talosmachines.ichor.maesh.dev --subresource=status", true},
		{"controller", "update", "talosmachines.ichor.maesh.dev", false},
		{"controller", "patch", "talosclusters.ichor.maesh.dev", false},
		{"controller", "approve", "talosmachines.ichor.maesh.dev --subresource=approval", false},
		{"controller", "remove", "talosmachines.ichor.maesh.dev --subresource=removal", false},
		{"controller", "get", "secrets --namespace=kube-system", false},
		{"controller", "*", "*", false},
	}
	for _, test := range tests {
		t.Run(strings.Join([]string{test.who, test.verb, test.resource}, " "), func(t *testing.T) {
			kubeconfig, args := s.stack.Dir().Kubeconfig(), controller
			if test.who != "controller" {
				kubeconfig, args = s.stack.Dir().KubeconfigOf(test.who), nil
			}
			args = append([]string{"auth", "can-i", test.verb}, append(strings.Fields(test.resource), args...)...)
			answer := s.run(t, kubeconfig, "kubectl", args...)
			if got := strings.TrimSpace(answer.out) == "yes"; got != test.want {
				t.Errorf("kubectl %s: %q %q, want %v", strings.Join(args, " "), answer.out, answer.err, test.want)
			}
		})
	}
}
