// SPDX-License-Identifier: Apache-2.0

// Package install adds every version of the API group to a scheme, with v1alpha1 preferred.
package install

import (
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// Install adds the group's versions to the scheme.
func Install(scheme *runtime.Scheme) {
	utilruntime.Must(ichor.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	utilruntime.Must(scheme.SetVersionPriority(v1alpha1.SchemeGroupVersion))
}
