// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"strings"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"
)

// gap is the space between two columns.
const gap = "  "

// Columns lines rows up. The last column isn't padded, so no line ends in blanks. Cells may carry colours.
func Columns(rows [][]string) []string {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], lipgloss.Width(cell))
		}
	}
	lines := make([]string, 0, len(rows))
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell)
			if i < len(row)-1 {
				line.WriteString(strings.Repeat(" ", widths[i]-lipgloss.Width(cell)))
				line.WriteString(gap)
			}
		}
		lines = append(lines, strings.TrimRight(line.String(), " "))
	}
	return lines
}

// fields is a list of names and values, drawn as two columns; a value of several lines hangs under itself.
type fields struct {
	rows [][2]string
}

func (f *fields) add(name, value string) {
	if value != "" {
		f.rows = append(f.rows, [2]string{name, value})
	}
}

// addLines adds one value of several lines.
func (f *fields) addLines(name string, lines []string) {
	for i, line := range lines {
		if i > 0 {
			name = ""
		}
		f.rows = append(f.rows, [2]string{name, line})
	}
}

func (f *fields) lines(style Style, indent string) []string {
	width := 0
	for _, row := range f.rows {
		width = max(width, lipgloss.Width(row[0]))
	}
	lines := make([]string, 0, len(f.rows))
	for _, row := range f.rows {
		padding := strings.Repeat(" ", width-lipgloss.Width(row[0]))
		lines = append(lines, strings.TrimRight(indent+style.Faint(row[0])+padding+gap+row[1], " "))
	}
	return lines
}

// page collects the lines of a screen.
type page struct {
	style Style
	text  strings.Builder
}

func (p *page) line(text string) {
	p.text.WriteString(text)
	p.text.WriteByte('\n')
}

func (p *page) block(title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	p.line("")
	p.line(p.style.Heading(title))
	for _, line := range lines {
		p.line(line)
	}
}

func indented(lines []string) []string {
	out := make([]string, 0, len(lines))
	for _, line := range lines {
		out = append(out, gap+line)
	}
	return out
}

// Cut shortens a line to a terminal's width; a width of 0 isn't known and cuts nothing.
func Cut(line string, width int) string {
	if width <= 0 || lipgloss.Width(line) <= width {
		return line
	}
	return ansi.Truncate(line, width, "…")
}
