// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"cmp"
	"fmt"
	"time"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"maesh.dev/ichor/pkg/apis/ichor"
)

const (
	maxGates, maxWindows = 16, 16
	maxExpression        = 4 << 10
)

// operationMembers are the members of the union, in the order of the API's reference. Whole ones are about the cluster,
// not about some of its machines.
func operationMembers(spec *ichor.TalosOperationSpec) (members []member, whole string) {
	for _, m := range []struct {
		member
		whole bool
	}{
		{member{"talosUpgrade", spec.TalosUpgrade != nil}, false},
		{member{"kubernetesUpgrade", spec.KubernetesUpgrade != nil}, false},
		{member{"ciliumUpgrade", spec.CiliumUpgrade != nil}, true},
		{member{"ichorUpgrade", spec.IchorUpgrade != nil}, true},
		{member{"configRollout", spec.ConfigRollout != nil}, false},
		{member{"reboot", spec.Reboot != nil}, false},
		{member{"shutdown", spec.Shutdown != nil}, false},
		{member{"etcdRestore", spec.EtcdRestore != nil}, true},
		{member{"rotateCA", spec.RotateCA != nil}, true},
		{member{"rotateKey", spec.RotateKey != nil}, true},
	} {
		members = append(members, m.member)
		if m.set && m.whole {
			whole = m.name
		}
	}
	return members, whole
}

// OperationType is the name of the member of the union that is given.
func OperationType(spec *ichor.TalosOperationSpec) string {
	members, _ := operationMembers(spec)
	for _, m := range members {
		if m.set {
			return m.name
		}
	}
	return ""
}

// ValidateTalosOperation judges a new operation, but for the expressions of its gates.
func ValidateTalosOperation(operation *ichor.TalosOperation) field.ErrorList {
	path, spec := field.NewPath("spec"), &operation.Spec
	errs := objectName(operation.Name, field.NewPath("metadata", "name"))
	errs = append(errs, clusterRef(spec.ClusterRef, path.Child("clusterRef"))...)
	members, whole := operationMembers(spec)
	errs = append(errs, exactlyOne(path, members...)...)
	errs = append(errs, validateOperationMember(spec, path)...)
	if machines := spec.Machines; machines != nil {
		path := path.Child("machines")
		if whole != "" {
			errs = append(errs, field.Forbidden(path, whole+" is about the whole cluster"))
		}
		if len(machines.Names) == 0 && machines.Selector == nil {
			errs = append(errs, field.Required(path, "names or a selector; leave machines out for all"))
		}
		errs = append(errs, machineNames(machines.Names, path.Child("names"))...)
		errs = append(errs, selector(machines.Selector, path.Child("selector"))...)
	}
	errs = append(errs, oneOf(spec.Mode, path.Child("mode"), ichor.OperationModeRun, ichor.OperationModePlan)...)
	errs = append(errs, validateGates(spec.Gates, path.Child("gates"))...)
	errs = append(errs, validateWindows(spec.Windows, path.Child("windows"))...)
	errs = append(errs, lasting(spec.Drain.Timeout, time.Second, 0, path.Child("drain", "timeout"))...)
	return append(errs, lasting(spec.Drain.SkipWaitForDeleteTimeout, 0, 24*time.Hour, path.Child("drain", "skipWaitForDeleteTimeout"))...)
}

func validateOperationMember(spec *ichor.TalosOperationSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	versioned := func(text, member, example string) {
		pattern := versionWithV
		if member == "ciliumUpgrade" {
			pattern = versionWithoutV
		}
		if text != "" {
			errs = append(errs, version(text, path.Child(member, "version"), pattern, example)...)
		}
	}
	if m := spec.TalosUpgrade; m != nil {
		versioned(m.Version, "talosUpgrade", "v1.14.6")
		if m.SchematicID != "" && !schematic.MatchString(m.SchematicID) {
			errs = append(errs, field.Invalid(path.Child("talosUpgrade", "schematicID"), m.SchematicID, "must be a schematic of the Image Factory: 64 hexadecimal digits"))
		}
	}
	if m := spec.KubernetesUpgrade; m != nil {
		versioned(m.Version, "kubernetesUpgrade", "v1.36.7")
	}
	if m := spec.CiliumUpgrade; m != nil {
		versioned(m.Version, "ciliumUpgrade", "1.20.5")
	}
	if m := spec.IchorUpgrade; m != nil {
		versioned(m.Version, "ichorUpgrade", "v0.2.0")
	}
	if m := spec.Reboot; m != nil {
		errs = append(errs, oneOf(cmp.Or(m.Mode, ichor.RebootDefault), path.Child("reboot", "mode"), ichor.RebootDefault, ichor.RebootPowerCycle)...)
	}
	if m := spec.Shutdown; m != nil && spec.Machines == nil {
		errs = append(errs, consent(m.Consent, spec.ClusterRef.Name, path.Child("shutdown", "consent"), "the whole cluster goes down")...)
	}
	if m := spec.EtcdRestore; m != nil {
		path := path.Child("etcdRestore")
		errs = append(errs, objectName(m.Backup.Name, path.Child("backup", "name"))...)
		errs = append(errs, tooLong(m.Backup.Key, 1024, path.Child("backup", "key"))...)
		errs = append(errs, consent(m.Consent, spec.ClusterRef.Name, path.Child("consent"), "everything written after the backup is lost")...)
	}
	if m := spec.RotateCA; m != nil {
		errs = append(errs, oneOf(m.Authority, path.Child("rotateCA", "authority"), ichor.CertificateAuthorityTalos,
			ichor.CertificateAuthorityKubernetes, ichor.CertificateAuthorityEtcd, ichor.CertificateAuthorityAggregator)...)
	}
	if m := spec.RotateKey; m != nil {
		errs = append(errs, oneOf(m.Key, path.Child("rotateKey", "key"), ichor.ClusterKeyServiceAccount, ichor.ClusterKeySecretbox)...)
	}
	return errs
}

// consent refuses what isn't the cluster's name, typed once more.
func consent(text, cluster string, path *field.Path, why string) field.ErrorList {
	if text == cluster && text != "" {
		return nil
	}
	return field.ErrorList{field.Invalid(path, text, fmt.Sprintf("must be the name of the cluster, %q, typed once more: %s", cluster, why))}
}

func validateGates(gates []ichor.OperationGate, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(gates) > maxGates {
		errs = append(errs, field.TooMany(path, len(gates), maxGates))
	}
	seen := map[string]bool{}
	for i, gate := range gates {
		path := path.Index(i)
		errs = append(errs, name(gate.Name, path.Child("name"), utilvalidation.IsDNS1123Label)...)
		if seen[gate.Name] {
			errs = append(errs, field.Duplicate(path.Child("name"), gate.Name))
		}
		seen[gate.Name] = true
		errs = append(errs, exactlyOne(path, member{"cel", gate.CEL != nil}, member{"job", gate.Job != nil})...)
		errs = append(errs, lasting(gate.Timeout, time.Second, 0, path.Child("timeout"))...)
		if cel := gate.CEL; cel != nil {
			errs = append(errs, validateCELGate(cel, path.Child("cel"))...)
		}
		if job := gate.Job; job != nil {
			errs = append(errs, name(job.Namespace, path.Child("job", "namespace"), utilvalidation.IsDNS1123Label)...)
			errs = append(errs, objectName(job.CronJob, path.Child("job", "cronJob"))...)
		}
	}
	return errs
}

func validateCELGate(gate *ichor.CELGate, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	errs = append(errs, groupVersion(gate.APIVersion, path.Child("apiVersion"))...)
	if gate.Kind == "" {
		errs = append(errs, field.Required(path.Child("kind"), "the kind of the object, such as CephCluster"))
	}
	errs = append(errs, tooLong(gate.Kind, 63, path.Child("kind"))...)
	if gate.APIVersion == "v1" && gate.Kind == "Secret" {
		errs = append(errs, field.Forbidden(path.Child("kind"), "whether the gate is open would tell what is in a Secret; look at another object"))
	}
	if gate.Namespace != "" {
		errs = append(errs, name(gate.Namespace, path.Child("namespace"), utilvalidation.IsDNS1123Label)...)
	}
	errs = append(errs, objectName(gate.Name, path.Child("name"))...)
	if gate.Expression == "" {
		errs = append(errs, field.Required(path.Child("expression"), "an expression over the variable object, such as object.status.ready"))
	}
	return append(errs, tooLong(gate.Expression, maxExpression, path.Child("expression"))...)
}

func validateWindows(windows []ichor.OperationWindow, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(windows) > maxWindows {
		errs = append(errs, field.TooMany(path, len(windows), maxWindows))
	}
	for i, window := range windows {
		path := path.Index(i)
		errs = append(errs, cronFields(window.Schedule, window.TimeZone, path.Child("schedule"), path.Child("timeZone"))...)
		errs = append(errs, lasting(&window.Duration, time.Minute, 7*24*time.Hour, path.Child("duration"))...)
	}
	return errs
}

// ValidateTalosOperationUpdate judges a change through the main resource: nothing but suspend.
func ValidateTalosOperationUpdate(operation, was *ichor.TalosOperation) field.ErrorList {
	now := operation.Spec
	now.Suspend = was.Spec.Suspend
	return frozen(now, was.Spec, field.NewPath("spec"), "can't be changed, but for suspend; cancel the operation and make another")
}

// OperationOver tells whether nothing will happen any more.
func OperationOver(operation *ichor.TalosOperation) bool {
	switch operation.Status.Phase {
	case ichor.OperationSucceeded, ichor.OperationFailed, ichor.OperationCancelled:
		return true
	}
	return false
}

// ValidateTalosOperationControl judges a request to resume or to cancel.
func ValidateTalosOperationControl(operation, was *ichor.TalosOperation) field.ErrorList {
	path := field.NewPath("spec", "control")
	if OperationOver(was) {
		return field.ErrorList{field.Forbidden(path, fmt.Sprintf("the operation is %s, and nothing happens any more; make another", was.Status.Phase))}
	}
	if control := was.Spec.Control; control != nil && control.CancelRequested && !operation.Spec.Control.CancelRequested {
		return field.ErrorList{field.Forbidden(path.Child("cancelRequested"), "can't be taken back")}
	}
	return nil
}

// ValidateTalosOperationStatusUpdate judges a status.
func ValidateTalosOperationStatusUpdate(operation, was *ichor.TalosOperation) field.ErrorList {
	path := field.NewPath("status")
	errs := conditions(operation.Status.Conditions, path)
	if operation.Status.Phase != "" {
		errs = append(errs, oneOf(operation.Status.Phase, path.Child("phase"), ichor.OperationPending, ichor.OperationQueued, ichor.OperationWaiting,
			ichor.OperationRunning, ichor.OperationPaused, ichor.OperationSucceeded, ichor.OperationFailed, ichor.OperationCancelled)...)
	}
	if OperationOver(was) && operation.Status.Phase != was.Status.Phase {
		errs = append(errs, field.Forbidden(path.Child("phase"), fmt.Sprintf("%s is final", was.Status.Phase)))
	}
	return errs
}

// OperationWarnings tell of what is allowed and may be unwise.
func OperationWarnings(operation *ichor.TalosOperation) []string {
	var warnings []string
	if operation.Spec.Drain.DisableEviction {
		warnings = append(warnings, "spec.drain.disableEviction: pods are deleted past their PodDisruptionBudgets")
	}
	named := operation.Spec.Machines != nil
	if m := operation.Spec.TalosUpgrade; named && m != nil && m.Version != "" {
		warnings = append(warnings, "spec.talosUpgrade.version: some machines only; the others keep theirs until an operation without machines")
	}
	if operation.Spec.Suspend {
		warnings = append(warnings, "spec.suspend: no machine is begun until it is false")
	}
	return append(warnings, windowWarnings(&operation.Spec)...)
}
