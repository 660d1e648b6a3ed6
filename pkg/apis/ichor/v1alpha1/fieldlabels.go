// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
)

// MachineFieldLabels are the field selectors of talosmachines. Once published, a selector is part of the API.
var MachineFieldLabels = []string{"metadata.name", "spec.approvalState", "spec.clusterRef.name", "spec.role", "status.stage"}

// ClusterFieldLabels are the field selectors of talosclusters.
var ClusterFieldLabels = []string{"metadata.name"}

func addFieldLabelConversions(scheme *runtime.Scheme) error {
	for kind, labels := range map[string][]string{"TalosMachine": MachineFieldLabels, "TalosCluster": ClusterFieldLabels} {
		if err := scheme.AddFieldLabelConversionFunc(SchemeGroupVersion.WithKind(kind), allow(kind, labels)); err != nil {
			return err
		}
	}
	return nil
}

func allow(kind string, labels []string) runtime.FieldLabelConversionFunc {
	return func(label, value string) (string, string, error) {
		for _, known := range labels {
			if label == known {
				return label, value, nil
			}
		}
		return "", "", fmt.Errorf("field selector %q is not supported for %s; supported are %v", label, kind, labels)
	}
}
