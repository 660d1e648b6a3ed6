// SPDX-License-Identifier: Apache-2.0

// Package configpatch writes into the status of TalosConfigPatches what became of them: on how many machines they are,
// which refuse them and why, and with which other patches they disagree. It reads objects only; what is applied, and when,
// is the machine controller's part.
package configpatch
