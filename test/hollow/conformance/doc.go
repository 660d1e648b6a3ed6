// SPDX-License-Identifier: Apache-2.0

// Package conformance holds the hollow node to what real nodes said: its tests call every method in both modes with every
// role, list every COSI type, and compare with the recordings in test/hollow/testdata. What differs is listed with its
// reason; a difference that is not listed, or one that is listed and gone, fails.
package conformance
