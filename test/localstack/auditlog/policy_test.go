// SPDX-License-Identifier: Apache-2.0

package auditlog_test

import (
	"testing"

	"maesh.dev/ichor/artifacts"
	"maesh.dev/ichor/test/localstack/auditlog"
)

func TestTheGatheredLogHasWhatIchorsPolicyKeeps(t *testing.T) {
	t.Parallel()
	keep, err := auditlog.ByPolicy(artifacts.KubeAPIServerAuditPolicy)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, line string
		want       bool
	}{
		{"an approval", `{"verb":"patch","user":{"username":"operator","groups":["system:authenticated"]},
			"requestURI":"/apis/ichor.maesh.dev/v1alpha1/talosmachines/m/approval",
			"objectRef":{"resource":"talosmachines","name":"m","apiGroup":"ichor.maesh.dev","apiVersion":"v1alpha1","subresource":"approval"}}`, true},
		{"the same when it has only just come in", `{"stage":"RequestReceived","verb":"patch","user":{"username":"operator"},
			"requestURI":"/apis/ichor.maesh.dev/v1alpha1/talosmachines/m/approval",
			"objectRef":{"resource":"talosmachines","name":"m","apiGroup":"ichor.maesh.dev","apiVersion":"v1alpha1","subresource":"approval"}}`, false},
		{"the controller's status", `{"verb":"update","user":{"username":"system:serviceaccount:ichor-system:ichor-controller"},
			"requestURI":"/apis/ichor.maesh.dev/v1alpha1/talosmachines/m/status",
			"objectRef":{"resource":"talosmachines","name":"m","apiGroup":"ichor.maesh.dev","apiVersion":"v1alpha1","subresource":"status"}}`, false},
		{"a Lease", `{"verb":"update","user":{"username":"system:node:cp-1","groups":["system:nodes"]},
			"objectRef":{"resource":"leases","namespace":"kube-node-lease","name":"cp-1","apiGroup":"coordination.k8s.io"}}`, false},
		{"health", `{"verb":"get","user":{"username":"admin"},"requestURI":"/readyz"}`, false},
		{"what isn't understood", "not JSON", true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := keep([]byte(test.line + "\n")); got != test.want {
				t.Errorf("kept: %v, want %v", got, test.want)
			}
		})
	}
}
