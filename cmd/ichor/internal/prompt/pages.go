// SPDX-License-Identifier: Apache-2.0

package prompt

import (
	"context"
	"errors"
	"io"

	tea "charm.land/bubbletea/v2"
	"charm.land/huh/v2"
	"charm.land/lipgloss/v2"
)

// nothingChosen is the first option of a choice that has nothing preselected.
const nothingChosen = "choose one …"

// Pages draws a form in the terminal; one can go back with shift+tab.
type Pages struct {
	in  io.Reader
	out io.Writer
	// options of the terminal program, for tests.
	options []tea.ProgramOption
}

// NewPages makes an asker for a terminal.
func NewPages(in io.Reader, out io.Writer, options ...tea.ProgramOption) *Pages {
	return &Pages{in: in, out: out, options: options}
}

// Ask implements Asker.
func (p *Pages) Ask(ctx context.Context, pages []Page) (Answers, error) {
	form := newPagedForm(pages)
	if err := p.run(ctx, huh.NewForm(form.groups...)); err != nil {
		return nil, err
	}
	return form.answers(), nil
}

// Confirm implements Asker.
func (p *Pages) Confirm(ctx context.Context, question string) (bool, error) {
	yes := false
	confirm := huh.NewConfirm().Title(question).Affirmative("Yes").Negative("No").WithButtonAlignment(lipgloss.Left).Value(&yes)
	err := p.run(ctx, huh.NewForm(huh.NewGroup(confirm)))
	return yes, err
}

func (p *Pages) run(ctx context.Context, form *huh.Form) error {
	options := append([]tea.ProgramOption{tea.WithInput(p.in), tea.WithOutput(p.out)}, p.options...)
	err := form.WithProgramOptions(options...).WithTheme(huh.ThemeFunc(huh.ThemeBase16)).RunWithContext(ctx)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, huh.ErrUserAborted):
		return ErrAborted
	}
	return err
}

// pagedForm ties pages to the form that draws them.
type pagedForm struct {
	pages  []Page
	values map[string]*string
	groups []*huh.Group
}

func newPagedForm(pages []Page) *pagedForm {
	form := &pagedForm{pages: pages, values: map[string]*string{}}
	for i := range pages {
		for j := range pages[i].Questions {
			form.values[pages[i].Questions[j].Key] = new(string)
		}
	}
	for i := range pages {
		page := &pages[i]
		fields := make([]huh.Field, 0, len(page.Questions))
		for j := range page.Questions {
			fields = append(fields, form.field(&page.Questions[j]))
		}
		group := huh.NewGroup(fields...).Title(page.Title)
		group.WithHideFunc(func() bool { return !page.applies(form.answers()) })
		form.groups = append(form.groups, group)
	}
	return form
}

func (f *pagedForm) field(question *Question) huh.Field {
	value := f.values[question.Key]
	if len(question.Options) == 0 {
		check := func(typed string) error {
			if typed == "" {
				typed = question.fallback(f.answers())
			}
			return question.check(typed)
		}
		input := huh.NewInput().Title(question.Title).Description(question.Help).Validate(check).Value(value)
		if question.DependsOn != "" {
			return input.PlaceholderFunc(func() string { return question.fallback(f.answers()) }, f.values[question.DependsOn])
		}
		return input.Placeholder(question.fallback(f.answers()))
	}
	var options []huh.Option[string]
	*value = question.fallback(f.answers())
	if *value == "" {
		options = append(options, huh.NewOption(nothingChosen, ""))
	}
	for _, option := range question.Options {
		options = append(options, huh.NewOption(option.Label, option.Value))
	}
	return huh.NewSelect[string]().Title(question.Title).Description(question.Help).Options(options...).Validate(question.check).Value(value)
}

// answers are what the fields hold, with the defaults of empty ones, for the pages that apply.
func (f *pagedForm) answers() Answers {
	answers := Answers{}
	for i := range f.pages {
		if !f.pages[i].applies(answers) {
			continue
		}
		for j := range f.pages[i].Questions {
			question := &f.pages[i].Questions[j]
			answer := *f.values[question.Key]
			if answer == "" {
				answer = question.fallback(answers)
			}
			answers[question.Key] = answer
		}
	}
	return answers
}
