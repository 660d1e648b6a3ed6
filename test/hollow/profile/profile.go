// SPDX-License-Identifier: Apache-2.0

// Package profile holds what differs between Talos versions, as data that the hollow node asks for.
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

// Profile is one minor version's behaviour. A new minor version is a new value here; handlers ask the fields and never
// compare versions.
type Profile struct {
	// Minor is "1.13".
	Minor string
	// Sha, Built and GoVersion are what Version reports beside the tag.
	Sha, Built, GoVersion string
	// OldestUpgradeFrom is the lowest minor of 1.x from which the installer of this version upgrades
	// (machinery: compatibility, the installer's preflight).
	OldestUpgradeFrom int
	// NewestDowngradeFrom is the highest minor of 1.x from which it downgrades.
	NewestDowngradeFrom int
	// RebootsOnApply is false from 1.14 on: mode REBOOT is unimplemented and AUTO never reboots.
	RebootsOnApply bool
	// Lifecycle tells that LifecycleService, ImageService and DebugService are served.
	Lifecycle bool
}

var profiles = []*Profile{
	{
		Minor: "1.13", Sha: "unknown", Built: "", GoVersion: "go1.26.7", OldestUpgradeFrom: 11, NewestDowngradeFrom: 14,
		RebootsOnApply: true, Lifecycle: true,
	},
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
