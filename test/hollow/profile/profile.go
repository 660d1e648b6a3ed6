// SPDX-License-Identifier: Apache-2.0

// Package profile holds what differs between Talos versions, as data that the hollow node asks for. The values are in
// versions.go; where each one comes from is in sources.go.
package profile

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// DefaultVersion is the version of a machine whose fleet entry names none.
const DefaultVersion = "v1.13.9"

// Profile is one minor version's behaviour. A new minor version is a new value; handlers ask the fields and never compare
// versions. What all versions have in common is in the handlers.
type Profile struct {
	// Minor is "1.13".
	Minor string
	// Sha, Built and GoVersion are what Version reports beside the tag.
	Sha, Built, GoVersion string
	// OldestUpgradeFrom and NewestDowngradeFrom are the lowest and the highest minor of 1.x from which the installer of this
	// version takes over.
	OldestUpgradeFrom, NewestDowngradeFrom int
	// OldestKubernetes and NewestKubernetes are the lowest and the highest minor of Kubernetes 1.x that a configuration may
	// ask for.
	OldestKubernetes, NewestKubernetes int
	// MaintenanceServer tells that maintenance has a server of its own with a few methods, instead of apid with the role
	// os:reader.
	MaintenanceServer bool
	// Containerd tells that ImageService, LifecycleService and DebugService are served.
	Containerd bool
	// RebootsOnApply tells that some changes of a configuration reboot the machine. Without it mode REBOOT is unimplemented.
	RebootsOnApply bool
	// RefusesUnknownModes tells that an apply with a mode that isn't one is InvalidArgument; else it is Unknown.
	RefusesUnknownModes bool
	// RunsFromMemory tells that a configuration may do without install instructions: the machine then runs from memory.
	RunsFromMemory bool
	// StreamErrorsInData tells that what goes wrong while a stream runs comes inside of a message; else it is the call's status.
	StreamErrorsInData bool
	// MissingTypes are COSI types of 1.13 that this version hasn't.
	MissingTypes []string
	// ExtraTypes are COSI types that 1.13 hasn't.
	ExtraTypes []ExtraType
	// MissingKinds are kinds of documents of 1.13 that this version refuses, as any kind it doesn't know.
	MissingKinds []string
	// MissingKeys are keys of documents of 1.13 that this version refuses, as any key it doesn't know: kind, then key.
	MissingKeys map[string][]string
	// LaterKinds are kinds of documents that this version has and 1.13 hasn't. A hollow machine, which reads configurations
	// with the machinery of 1.13, can't take them: it says so instead of calling them unknown.
	LaterKinds []string
	// NotPlayed is what else this version has and a hollow machine can't show, in words.
	NotPlayed []string
}

// ExtraType is a COSI type that the machinery of 1.13 doesn't know.
type ExtraType struct {
	// Type and Namespace name it.
	Type, Namespace string
	// Sensitive types are for os:admin.
	Sensitive bool
	// ID is that of its one resource; empty if hollow machines have none.
	ID string
	// Fields are the names of its fields in order, which is that of their numbers on the wire.
	Fields []string
}

// Known lists the minor versions that have a profile.
func Known() []string {
	var minors []string
	for _, p := range profiles {
		minors = append(minors, p.Minor)
	}
	return minors
}

var versionPattern = regexp.MustCompile(`^v1\.(\d+)\.\d+(-[0-9A-Za-z.-]+)?$`)

// MinorOf returns the 13 of v1.13.9.
func MinorOf(version string) (int, error) {
	m := versionPattern.FindStringSubmatch(version)
	if m == nil {
		return 0, fmt.Errorf("%q is no Talos version such as %s", version, DefaultVersion)
	}
	minor, err := strconv.Atoi(m[1])
	if err != nil {
		return 0, fmt.Errorf("%q is no Talos version: %w", version, err)
	}
	return minor, nil
}

// ForVersion finds the profile of a version such as v1.13.9.
func ForVersion(version string) (*Profile, error) {
	minor, err := MinorOf(version)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(profiles, func(p *Profile) bool { return p.Minor == "1."+strconv.Itoa(minor) })
	if i < 0 {
		return nil, fmt.Errorf("%s: no profile for 1.%d; known are %s", version, minor, strings.Join(Known(), ", "))
	}
	return profiles[i], nil
}

// UpgradeableFrom says what the installer's preflight says about a host of the given version.
func (p *Profile) UpgradeableFrom(host string) error {
	minor, err := MinorOf(host)
	if err != nil {
		return err
	}
	if minor < p.OldestUpgradeFrom {
		return fmt.Errorf("host version %s is too old to upgrade to Talos %s", strings.TrimPrefix(host, "v"), p.Minor)
	}
	if minor > p.NewestDowngradeFrom {
		return fmt.Errorf("host version %s is too new to downgrade to Talos %s", strings.TrimPrefix(host, "v"), p.Minor)
	}
	return nil
}

var imageTagPattern = regexp.MustCompile(`:v(1\.(\d+)\.\d+[^@]*)(@.*)?$`)

// RunsKubernetes judges the tag of an image of Kubernetes, in Talos' words; talos is the version that judges.
// Source: Talos, pkg/machinery/config/types/v1alpha1, ValidateKubernetesImageTag.
func (p *Profile) RunsKubernetes(image, talos string) error {
	m := imageTagPattern.FindStringSubmatch(image)
	if m == nil {
		return fmt.Errorf("failed to parse Kubernetes version from image reference %q: invalid image reference: %q", image, image)
	}
	minor, err := strconv.Atoi(m[2])
	if err != nil {
		return fmt.Errorf("failed to parse Kubernetes version from image reference %q: %w", image, err)
	}
	age := ""
	switch {
	case minor < p.OldestKubernetes:
		age = "old"
	case minor > p.NewestKubernetes:
		age = "new"
	default:
		return nil
	}
	return fmt.Errorf("version of Kubernetes %s is too %s to be used with Talos %s", m[1], age, strings.TrimPrefix(talos, "v"))
}
