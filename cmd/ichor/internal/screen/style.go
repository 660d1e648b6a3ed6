// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"charm.land/lipgloss/v2"
)

// Style gives text a meaning. Colour only repeats what the words say, so that nothing is lost without it.
type Style struct {
	coloured bool
}

// The two styles there are.
var (
	Plain    = Style{}
	Coloured = Style{coloured: true}
)

// The sixteen colours of the terminal's own palette, so that both light and dark themes stay readable.
var (
	headingStyle = lipgloss.NewStyle().Bold(true)
	faintStyle   = lipgloss.NewStyle().Faint(true)
	goodStyle    = lipgloss.NewStyle().Foreground(lipgloss.Green)
	waitStyle    = lipgloss.NewStyle().Foreground(lipgloss.Yellow)
	badStyle     = lipgloss.NewStyle().Foreground(lipgloss.Red).Bold(true)
	removedStyle = lipgloss.NewStyle().Foreground(lipgloss.Red)
	commandStyle = lipgloss.NewStyle().Foreground(lipgloss.Cyan)
)

func (s Style) render(style lipgloss.Style, text string) string {
	if !s.coloured || text == "" {
		return text
	}
	return style.Render(text)
}

// Heading is a title.
func (s Style) Heading(text string) string { return s.render(headingStyle, text) }

// Faint is what matters less.
func (s Style) Faint(text string) string { return s.render(faintStyle, text) }

// Good is what is as it should be.
func (s Style) Good(text string) string { return s.render(goodStyle, text) }

// Wait is what is under way, or waits for someone.
func (s Style) Wait(text string) string { return s.render(waitStyle, text) }

// Bad is what is wrong.
func (s Style) Bad(text string) string { return s.render(badStyle, text) }

// Command is something to type.
func (s Style) Command(text string) string { return s.render(commandStyle, text) }
