// SPDX-License-Identifier: Apache-2.0

// Package validation judges Ichor's resources: what may be created, and what may be changed to what. It is pure: what
// has to be known besides the object is handed in. Each function returns all faults at once, each with field, value and
// reason, in words that say what to do.
package validation
