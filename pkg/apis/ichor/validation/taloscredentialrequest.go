// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"maesh.dev/ichor/pkg/apis/ichor"
)

const (
	minCredentialTTL = time.Minute
	// MaxCredentialTTL bounds what is asked for; MaxAdminCredentialTTL does so for os:admin.
	MaxCredentialTTL      = 24 * time.Hour
	MaxAdminCredentialTTL = time.Hour
)

// ValidateTalosCredentialRequest judges a new request.
func ValidateTalosCredentialRequest(request *ichor.TalosCredentialRequest) field.ErrorList {
	path, spec := field.NewPath("spec"), &request.Spec
	errs := objectName(request.Name, field.NewPath("metadata", "name"))
	errs = append(errs, clusterRef(spec.ClusterRef, path.Child("clusterRef"))...)
	errs = append(errs, oneOf(spec.Role, path.Child("role"), ichor.TalosRoleReader, ichor.TalosRoleOperator, ichor.TalosRoleEtcdBackup, ichor.TalosRoleAdmin)...)
	longest := MaxCredentialTTL
	if spec.Role == ichor.TalosRoleAdmin {
		longest = MaxAdminCredentialTTL
	}
	errs = append(errs, lasting(spec.TTL, minCredentialTTL, longest, path.Child("ttl"))...)
	return append(errs, certificateRequest(spec.Request, path.Child("request"))...)
}

// ValidateTalosCredentialRequestUpdate judges a change through the main resource: none.
func ValidateTalosCredentialRequestUpdate(request, was *ichor.TalosCredentialRequest) field.ErrorList {
	return frozen(request.Spec, was.Spec, field.NewPath("spec"), "can't be changed; make another request")
}

// ValidateTalosCredentialRequestStatusUpdate judges a status.
func ValidateTalosCredentialRequestStatusUpdate(request, _ *ichor.TalosCredentialRequest) field.ErrorList {
	path := field.NewPath("status")
	errs := conditions(request.Status.Conditions, path)
	errs = append(errs, certificates(string(request.Status.Certificate), path.Child("certificate"))...)
	return append(errs, certificates(string(request.Status.CA), path.Child("ca"))...)
}
