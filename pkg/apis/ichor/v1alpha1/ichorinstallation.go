// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +genclient
// +genclient:nonNamespaced
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// IchorInstallation is how Ichor itself runs in its cluster. There is one, named ichor.
type IchorInstallation struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata. The name is ichor.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// spec is how Ichor should run.
	Spec IchorInstallationSpec `json:"spec"`
	// status is how it does, written by Ichor alone.
	// +optional
	Status IchorInstallationStatus `json:"status,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// IchorInstallationList is a list of IchorInstallations.
type IchorInstallationList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list's metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the installations.
	Items []IchorInstallation `json:"items"`
}

// IchorInstallationSpec is how Ichor should run.
type IchorInstallationSpec struct {
	// version of Ichor, for instance v0.1.0. Changing it changes nothing by itself: an operation ichorUpgrade does.
	Version string `json:"version"`
	// replicas of each part.
	// +optional
	Replicas InstallationReplicas `json:"replicas,omitempty"`
	// images say where the images come from.
	// +optional
	Images InstallationImages `json:"images,omitempty"`
	// ui is how the web page is reached.
	// +optional
	UI InstallationUI `json:"ui,omitempty"`
}

// InstallationReplicas is how many of each part run.
type InstallationReplicas struct {
	// apiServer replicas, 1 to 9; they run on control planes. Defaults to the cluster's spec.controlPlane.count.
	// +optional
	APIServer *int32 `json:"apiServer,omitempty"`
	// controller replicas, 1 to 9; one leads, the others wait. Defaults to 2.
	// +optional
	Controller *int32 `json:"controller,omitempty"`
	// ui replicas, 0 to 9; 0 leaves the web page out. Defaults to 2.
	// +optional
	UI *int32 `json:"ui,omitempty"`
}

// InstallationImages say where the images come from.
type InstallationImages struct {
	// registry is the host and path that the images are pulled from, for instance registry.example.org/ichor. Empty: the
	// one that the version was published with.
	// +optional
	Registry string `json:"registry,omitempty"`
	// pullSecretRef names the Secret in ichor-system that images are pulled with. Absent: without.
	// +optional
	PullSecretRef *LocalSecretReference `json:"pullSecretRef,omitempty"`
}

// ExposureType is how a Service is reached from outside.
type ExposureType string

const (
	// ExposureClusterIP is reached from inside the cluster, or by kubectl port-forward.
	ExposureClusterIP ExposureType = "ClusterIP"
	// ExposureLoadBalancer asks for a load balancer.
	ExposureLoadBalancer ExposureType = "LoadBalancer"
	// ExposureIngress makes an Ingress.
	ExposureIngress ExposureType = "Ingress"
	// ExposureGateway makes an HTTPRoute of the Gateway API.
	ExposureGateway ExposureType = "Gateway"
)

// InstallationUI is how the web page is reached.
type InstallationUI struct {
	// exposure is ClusterIP, LoadBalancer, Ingress or Gateway. Defaults to ClusterIP.
	// +optional
	Exposure ExposureType `json:"exposure,omitempty"`
	// host is the DNS name of the page, for instance ichor.example.org. Required for Ingress and Gateway.
	// +optional
	Host string `json:"host,omitempty"`
	// tlsSecretRef names the Secret in ichor-system with the keys tls.crt and tls.key for host. Absent: a certificate of
	// Ichor's own.
	// +optional
	TLSSecretRef *LocalSecretReference `json:"tlsSecretRef,omitempty"`
	// ingressClassName of the Ingress. Empty: the cluster's default. Refused but for Ingress.
	// +optional
	IngressClassName string `json:"ingressClassName,omitempty"`
	// gatewayRef is the Gateway that the route attaches to. Required for Gateway, refused otherwise.
	// +optional
	GatewayRef *GatewayReference `json:"gatewayRef,omitempty"`
}

// GatewayReference names a Gateway of the Gateway API.
type GatewayReference struct {
	// namespace of the Gateway.
	Namespace string `json:"namespace"`
	// name of the Gateway.
	Name string `json:"name"`
	// sectionName is the listener. Empty: any.
	// +optional
	SectionName string `json:"sectionName,omitempty"`
}

// IchorInstallationStatus is how Ichor runs.
type IchorInstallationStatus struct {
	// observedGeneration is the generation of the spec that the rest of the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// conditions say how the installation is: Ready, Progressing.
	// The server adds Reconciling (on its way) and Stalled (waits for somebody), as kstatus reads them.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// version that runs.
	// +optional
	Version string `json:"version,omitempty"`
	// url of the web page.
	// +optional
	URL string `json:"url,omitempty"`
}
