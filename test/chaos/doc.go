// SPDX-License-Identifier: Apache-2.0

// Package chaos attacks whole installations and judges what is left: what was acknowledged must be there, what must never
// be must never have been, and everything must go on by itself. Its packages are the wires that can be cut, the world of
// processes, the faults, the load and the judge. Nothing of the product knows of it.
package chaos
