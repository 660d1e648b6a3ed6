// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"maesh.dev/ichor/pkg/apis/ichor"
)

const (
	maxDisplayName        = 128
	minUserCertificateTTL = 10 * time.Minute
	maxUserCertificateTTL = 30 * 24 * time.Hour
	// MinPassword and MaxPassword bound a password, in characters and in bytes.
	MinPassword = 12
	MaxPassword = 1024
)

// ValidateIchorUser judges a user.
func ValidateIchorUser(user *ichor.IchorUser) field.ErrorList {
	path, spec := field.NewPath("spec"), &user.Spec
	errs := name(user.Name, field.NewPath("metadata", "name"), utilvalidation.IsDNS1123Subdomain)
	errs = append(errs, oneOf(spec.Role, path.Child("role"), ichor.IchorUserViewer, ichor.IchorUserOperator, ichor.IchorUserAdmin)...)
	if utf8.RuneCountInString(spec.DisplayName) > maxDisplayName {
		errs = append(errs, field.TooLong(path.Child("displayName"), spec.DisplayName, maxDisplayName))
	}
	if strings.ContainsFunc(spec.DisplayName, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		errs = append(errs, field.Invalid(path.Child("displayName"), spec.DisplayName, "must not hold control characters"))
	}
	return errs
}

// ValidateIchorUserUpdate judges a change through the main resource.
func ValidateIchorUserUpdate(user, _ *ichor.IchorUser) field.ErrorList {
	return ValidateIchorUser(user)
}

// ValidateIchorUserCertificate judges a request for a certificate.
func ValidateIchorUserCertificate(user, was *ichor.IchorUser) field.ErrorList {
	path := field.NewPath("spec", "certificateRequest")
	if was.Spec.Disabled {
		return field.ErrorList{field.Forbidden(path, fmt.Sprintf("user %s is disabled", was.Name))}
	}
	request := user.Spec.CertificateRequest
	if request == nil {
		return field.ErrorList{field.Required(path, "what the certificate is for")}
	}
	errs := certificateRequest(request.Request, path.Child("request"))
	return append(errs, lasting(request.TTL, minUserCertificateTTL, maxUserCertificateTTL, path.Child("ttl"))...)
}

// ValidateIchorUserStatusUpdate judges a status.
func ValidateIchorUserStatusUpdate(user, _ *ichor.IchorUser) field.ErrorList {
	path := field.NewPath("status")
	errs := conditions(user.Status.Conditions, path)
	return append(errs, certificates(string(user.Status.Certificate), path.Child("certificate"))...)
}

// ValidatePassword judges a new password. The error never holds it.
func ValidatePassword(password, user string, path *field.Path) field.ErrorList {
	switch length := utf8.RuneCountInString(password); {
	case password == "":
		return field.ErrorList{field.Required(path, fmt.Sprintf("at least %d characters", MinPassword))}
	case !utf8.ValidString(password) || strings.ContainsRune(password, 0):
		return field.ErrorList{field.Invalid(path, "", "must be text in UTF-8")}
	case length < MinPassword:
		return field.ErrorList{field.Invalid(path, "", fmt.Sprintf("must be at least %d characters long", MinPassword))}
	case len(password) > MaxPassword:
		return field.ErrorList{field.Invalid(path, "", fmt.Sprintf("must be at most %d bytes long", MaxPassword))}
	case strings.Contains(strings.ToLower(password), strings.ToLower(user)):
		return field.ErrorList{field.Invalid(path, "", "must not hold the user's name")}
	case strings.Count(password, string([]rune(password)[0])) == length:
		return field.ErrorList{field.Invalid(path, "", "must not be one character over and over")}
	}
	return nil
}
