// SPDX-License-Identifier: Apache-2.0

package ichor

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// IchorInstallation is how Ichor itself runs in its cluster. There is one, named ichor.
type IchorInstallation struct {
	metav1.TypeMeta
	// metadata is the standard object's metadata. The name is ichor.
	metav1.ObjectMeta
	// spec is how Ichor should run.
	Spec IchorInstallationSpec
	// status is how it does, written by Ichor alone.
	Status IchorInstallationStatus
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// IchorInstallationList is a list of IchorInstallations.
type IchorInstallationList struct {
	metav1.TypeMeta
	// metadata is the standard list's metadata.
	metav1.ListMeta
	// items are the installations.
	Items []IchorInstallation
}

// IchorInstallationSpec is how Ichor should run.
type IchorInstallationSpec struct {
	// version of Ichor, for instance v0.1.0. Changing it changes nothing by itself: an operation ichorUpgrade does.
	Version string
	// replicas of each part.
	Replicas InstallationReplicas
	// images say where the images come from.
	Images InstallationImages
	// ui is how the web page is reached.
	UI InstallationUI
}

// InstallationReplicas is how many of each part run.
type InstallationReplicas struct {
	// apiServer replicas, 1 to 9; they run on control planes. Defaults to the cluster's spec.controlPlane.count.
	APIServer *int32
	// controller replicas, 1 to 9; one leads, the others wait. Defaults to 2.
	Controller *int32
	// ui replicas, 0 to 9; 0 leaves the web page out. Defaults to 2.
	UI *int32
}

// InstallationImages say where the images come from.
type InstallationImages struct {
	// registry is the host and path that the images are pulled from, for instance registry.example.org/ichor. Empty: the
	// one that the version was published with.
	Registry string
	// pullSecretRef names the Secret in ichor-system that images are pulled with. Absent: without.
	PullSecretRef *LocalSecretReference
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
	Exposure ExposureType
	// host is the DNS name of the page, for instance ichor.example.org. Required for Ingress and Gateway.
	Host string
	// tlsSecretRef names the Secret in ichor-system with the keys tls.crt and tls.key for host. Absent: a certificate of
	// Ichor's own.
	TLSSecretRef *LocalSecretReference
	// ingressClassName of the Ingress. Empty: the cluster's default. Refused but for Ingress.
	IngressClassName string
	// gatewayRef is the Gateway that the route attaches to. Required for Gateway, refused otherwise.
	GatewayRef *GatewayReference
}

// GatewayReference names a Gateway of the Gateway API.
type GatewayReference struct {
	// namespace of the Gateway.
	Namespace string
	// name of the Gateway.
	Name string
	// sectionName is the listener. Empty: any.
	SectionName string
}

// IchorInstallationStatus is how Ichor runs.
type IchorInstallationStatus struct {
	// observedGeneration is the generation of the spec that the rest of the status is about.
	ObservedGeneration int64
	// conditions say how the installation is: Ready, Progressing.
	Conditions []metav1.Condition
	// version that runs.
	Version string
	// url of the web page.
	URL string
}
