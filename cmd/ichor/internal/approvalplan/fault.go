// SPDX-License-Identifier: Apache-2.0

package approvalplan

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
)

// Position is a place in a file.
type Position struct {
	File string
	Line int
}

func (p Position) String() string { return fmt.Sprintf("%s:%d", p.File, p.Line) }

// Fault is one thing that is wrong with a plan.
type Fault struct {
	Position
	// About is the machine or the field, as the file has it.
	About string
	What  string
	// Code is the exit status that it asks for.
	Code int
}

func (f *Fault) Error() string {
	if f.About == "" {
		return fmt.Sprintf("%s: %s", f.Position, f.What)
	}
	return fmt.Sprintf("%s: %s: %s", f.Position, f.About, f.What)
}

// heading is the line above the faults.
type heading string

func (h heading) Error() string { return string(h) }

// maxTold bounds how many faults are listed; a file that isn't a plan at all has thousands.
const maxTold = 200

// Join makes one error of all faults, in the order of the files' lines; nil if there is none.
func Join(faults []*Fault) error {
	if len(faults) == 0 {
		return nil
	}
	sorted := slices.Clone(faults)
	slices.SortStableFunc(sorted, func(a, b *Fault) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	count := "1 fault"
	if len(sorted) > 1 {
		count = fmt.Sprintf("%d faults", len(sorted))
	}
	told := []error{heading("nothing was approved, because of " + count + ":")}
	for i, fault := range sorted {
		if i == maxTold {
			told = append(told, fmt.Errorf("and %d more", len(sorted)-i))
			break
		}
		told = append(told, fault)
	}
	return cli.WithCode(code(sorted), errors.Join(told...))
}

// code is the exit status of several faults. A file that is wrong comes before machines that aren't as it says; a failure
// of the work itself (the server didn't answer) before both, because then nothing is known.
func code(faults []*Fault) int {
	codes := map[int]bool{}
	for _, fault := range faults {
		codes[fault.Code] = true
	}
	for _, worst := range []int{cli.ExitInterrupted, cli.ExitFailed, cli.ExitUsage, cli.ExitForbidden} {
		if codes[worst] {
			return worst
		}
	}
	return cli.ExitBlocked
}
