// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

const maxReplicas = 9

// ValidateIchorInstallation judges an installation.
func ValidateIchorInstallation(installation *ichor.IchorInstallation) field.ErrorList {
	path, spec := field.NewPath("spec"), &installation.Spec
	var errs field.ErrorList
	if installation.Name != v1alpha1.InstallationName {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), installation.Name, fmt.Sprintf("must be %q: there is one installation", v1alpha1.InstallationName)))
	}
	errs = append(errs, version(spec.Version, path.Child("version"), versionWithV, "v0.1.0")...)
	replicas := path.Child("replicas")
	for _, part := range []struct {
		name  string
		count *int32
		least int32
	}{{"apiServer", spec.Replicas.APIServer, 1}, {"controller", spec.Replicas.Controller, 1}, {"ui", spec.Replicas.UI, 0}} {
		if part.count != nil {
			errs = append(errs, between(*part.count, part.least, maxReplicas, replicas.Child(part.name))...)
		}
	}
	if registry := spec.Images.Registry; registry != "" && !registryName.MatchString(registry) {
		errs = append(errs, field.Invalid(path.Child("images", "registry"), registry, "must be a registry's host, with a port or path if it has one, such as registry.example.org/ichor"))
	}
	if ref := spec.Images.PullSecretRef; ref != nil {
		errs = append(errs, secretRef(*ref, path.Child("images", "pullSecretRef"))...)
	}
	return append(errs, validateExposure(&spec.UI, path.Child("ui"))...)
}

func validateExposure(ui *ichor.InstallationUI, path *field.Path) field.ErrorList {
	errs := oneOf(ui.Exposure, path.Child("exposure"), ichor.ExposureClusterIP, ichor.ExposureLoadBalancer, ichor.ExposureIngress, ichor.ExposureGateway)
	routed := ui.Exposure == ichor.ExposureIngress || ui.Exposure == ichor.ExposureGateway
	switch {
	case ui.Host != "":
		errs = append(errs, name(ui.Host, path.Child("host"), utilvalidation.IsDNS1123Subdomain)...)
	case routed:
		errs = append(errs, field.Required(path.Child("host"), fmt.Sprintf("%s goes by the name", ui.Exposure)))
	}
	if ui.TLSSecretRef != nil {
		errs = append(errs, secretRef(*ui.TLSSecretRef, path.Child("tlsSecretRef"))...)
	}
	if class := ui.IngressClassName; class != "" {
		if ui.Exposure != ichor.ExposureIngress {
			errs = append(errs, field.Forbidden(path.Child("ingressClassName"), "is for exposure Ingress alone"))
		}
		errs = append(errs, objectName(class, path.Child("ingressClassName"))...)
	}
	switch gateway := ui.GatewayRef; {
	case gateway == nil && ui.Exposure == ichor.ExposureGateway:
		errs = append(errs, field.Required(path.Child("gatewayRef"), "the Gateway that the route attaches to"))
	case gateway != nil:
		path := path.Child("gatewayRef")
		if ui.Exposure != ichor.ExposureGateway {
			errs = append(errs, field.Forbidden(path, "is for exposure Gateway alone"))
		}
		errs = append(errs, name(gateway.Namespace, path.Child("namespace"), utilvalidation.IsDNS1123Label)...)
		errs = append(errs, objectName(gateway.Name, path.Child("name"))...)
		if gateway.SectionName != "" {
			errs = append(errs, objectName(gateway.SectionName, path.Child("sectionName"))...)
		}
	}
	return errs
}

// ValidateIchorInstallationUpdate judges a change through the main resource.
func ValidateIchorInstallationUpdate(installation, _ *ichor.IchorInstallation) field.ErrorList {
	return ValidateIchorInstallation(installation)
}

// ValidateIchorInstallationStatusUpdate judges a status.
func ValidateIchorInstallationStatusUpdate(installation, _ *ichor.IchorInstallation) field.ErrorList {
	return conditions(installation.Status.Conditions, field.NewPath("status"))
}

// InstallationWarnings tell of what is allowed and may be unwise.
func InstallationWarnings(installation *ichor.IchorInstallation) []string {
	var warnings []string
	replicas := &installation.Spec.Replicas
	if replicas.APIServer != nil && *replicas.APIServer == 1 {
		warnings = append(warnings, "spec.replicas.apiServer: with 1, Ichor's API is away whenever its node is")
	}
	if replicas.Controller != nil && *replicas.Controller == 1 {
		warnings = append(warnings, "spec.replicas.controller: with 1, nothing is done to any machine while its node is away")
	}
	if exposure := installation.Spec.UI.Exposure; replicas.UI != nil && *replicas.UI == 0 && exposure != "" && exposure != ichor.ExposureClusterIP {
		warnings = append(warnings, fmt.Sprintf("spec.replicas.ui: with 0 there is no web page, and spec.ui.exposure %s leads to nothing", exposure))
	}
	return warnings
}
