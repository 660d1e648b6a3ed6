// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"regexp"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"maesh.dev/ichor/pkg/apis/ichor"
)

var (
	// bucketName is S3's rule for names of buckets, without its reserved beginnings and ends.
	bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)
	keyPrefix  = regexp.MustCompile(`^[A-Za-z0-9!_.*'()-]+(/[A-Za-z0-9!_.*'()-]+)*$`)
	regionName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,62}$`)
)

const maxPrefix = 512

// ValidateTalosStorage judges a storage.
func ValidateTalosStorage(storage *ichor.TalosStorage) field.ErrorList {
	path, spec := field.NewPath("spec"), &storage.Spec
	errs := objectName(storage.Name, field.NewPath("metadata", "name"))
	errs = append(errs, httpsURL(spec.Endpoint, path.Child("endpoint"))...)
	switch {
	case spec.Bucket == "":
		errs = append(errs, field.Required(path.Child("bucket"), "the name of a bucket that exists"))
	case !bucketName.MatchString(spec.Bucket):
		errs = append(errs, field.Invalid(path.Child("bucket"), spec.Bucket, "must be a bucket's name: 3 to 63 lower-case letters, digits, dots and hyphens"))
	}
	if spec.Prefix != "" && (len(spec.Prefix) > maxPrefix || !keyPrefix.MatchString(spec.Prefix)) {
		errs = append(errs, field.Invalid(path.Child("prefix"), spec.Prefix, "must be names with slashes between them and none at the ends, such as ichor/prod"))
	}
	if !regionName.MatchString(spec.Region) {
		errs = append(errs, field.Invalid(path.Child("region"), spec.Region, "must be a region's name, such as us-east-1"))
	}
	errs = append(errs, oneOf(spec.Addressing, path.Child("addressing"), ichor.BucketAddressingPath, ichor.BucketAddressingVirtualHost)...)
	errs = append(errs, oneOf(spec.Checksums, path.Child("checksums"), ichor.ChecksumsWhenRequired, ichor.ChecksumsWhenSupported)...)
	errs = append(errs, secretRef(spec.CredentialsSecretRef, path.Child("credentialsSecretRef"))...)
	errs = append(errs, certificates(spec.CABundle, path.Child("caBundle"))...)
	return append(errs, request(spec.CheckRequest, path.Child("checkRequest"))...)
}

// ValidateTalosStorageUpdate judges a change through the main resource.
func ValidateTalosStorageUpdate(storage, was *ichor.TalosStorage) field.ErrorList {
	return append(ValidateTalosStorage(storage), immutable(storage.Spec.Prefix, was.Spec.Prefix, field.NewPath("spec", "prefix"),
		"can't be changed: the backups that there are would not be found any more")...)
}

// ValidateTalosStorageStatusUpdate judges a status.
func ValidateTalosStorageStatusUpdate(storage, _ *ichor.TalosStorage) field.ErrorList {
	return conditions(storage.Status.Conditions, field.NewPath("status"))
}
