// SPDX-License-Identifier: Apache-2.0

// Package report holds what a chapter of the benchmarks found: its rows, the table a person reads, and the file
// that programs read. It measures nothing itself.
package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"text/tabwriter"
)

// Row is one figure of ours beside what it is compared with, both measured in the same run.
type Row struct {
	// Name says what was measured, in a few words.
	Name string `json:"name"`
	// Ours is Ichor's figure, in Unit.
	Ours float64 `json:"ours"`
	// Peer is the figure of what Ours is compared with, in Unit: another tool, a floor, or a limit. 0 is none.
	Peer float64 `json:"peer"`
	// Unit of both figures: s, MiB, 1/s, …
	Unit string `json:"unit"`
	// Ratio is Ours / Peer; 0 without a peer.
	Ratio float64 `json:"ratio"`
	// AtMost is the ratio that is aimed at; 0 aims at nothing.
	AtMost float64 `json:"atMost,omitempty"`
	// AtLeast is the same for what is better when it is more.
	AtLeast float64 `json:"atLeast,omitempty"`
}

// Compare is a row of ours and a peer's figure.
func Compare(name string, ours, peer float64, unit string, atMost float64) Row {
	row := Row{Name: name, Ours: ours, Peer: peer, Unit: unit, AtMost: atMost}
	if peer > 0 {
		row.Ratio = ours / peer
	}
	return row
}

// Missed says how the row's aim was missed; empty if it wasn't, or there is none.
func (r Row) Missed() string {
	switch {
	case r.AtMost > 0 && r.Ratio > r.AtMost:
		return fmt.Sprintf("%.2f times the peer, aimed at %.2f at most", r.Ratio, r.AtMost)
	case r.AtLeast > 0 && r.Ratio < r.AtLeast:
		return fmt.Sprintf("%.2f times the peer, aimed at %.2f at least", r.Ratio, r.AtLeast)
	}
	return ""
}

// aim is how the table shows what is aimed at.
func (r Row) aim() string {
	switch {
	case r.AtMost > 0:
		return "<= " + figure(r.AtMost)
	case r.AtLeast > 0:
		return ">= " + figure(r.AtLeast)
	}
	return "-"
}

// Write prints the rows as a table and keeps them as DIR/CHAPTER.json. A row that misses its aim is an error after
// everything is written, so that a run shows all of them.
func Write(w io.Writer, dir, chapter string, rows []Row) error {
	if err := table(w, chapter, rows); err != nil {
		return fmt.Errorf("print the results of %s: %w", chapter, err)
	}
	if err := save(dir, chapter, rows); err != nil {
		return fmt.Errorf("keep the results of %s: %w", chapter, err)
	}
	var missed []error
	for _, row := range rows {
		if how := row.Missed(); how != "" {
			missed = append(missed, fmt.Errorf("%s: %s: %s", chapter, row.Name, how))
		}
	}
	return errors.Join(missed...)
}

func table(w io.Writer, chapter string, rows []Row) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "%s\tOURS\tPEER\tUNIT\tRATIO\tAIM\n", chapter)
	for _, row := range rows {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", row.Name, figure(row.Ours), optional(row.Peer), row.Unit, optional(row.Ratio), row.aim())
	}
	return t.Flush()
}

// figure keeps three digits that mean something.
func figure(f float64) string {
	if f >= 1000 || f == float64(int64(f)) {
		return strconv.FormatFloat(f, 'f', 0, 64)
	}
	return strconv.FormatFloat(f, 'g', 3, 64)
}

func optional(f float64) string {
	if f == 0 {
		return "-"
	}
	return figure(f)
}

func save(dir, chapter string, rows []Row) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	text, err := json.MarshalIndent(rows, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, chapter+".json"), append(text, '\n'), 0o644)
}
