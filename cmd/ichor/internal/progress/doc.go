// SPDX-License-Identifier: Apache-2.0

// Package progress watches work that goes on by itself and shows it: redrawn in a terminal, one plain line per transition
// elsewhere. What is shown is state, read by a watch that resumes after every break; the end of the watching never ends
// the work.
package progress
