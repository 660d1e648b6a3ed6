// SPDX-License-Identifier: Apache-2.0

// Package prompt asks a person. A form is data, so that the same questions can be drawn as pages in a terminal or asked
// line by line for screen readers and terminals that can't be redrawn, and so that tests answer them.
package prompt

import (
	"context"
	"errors"
)

// ErrAborted says that the person left the form.
var ErrAborted = errors.New("the form was left")

// Answers are what was answered, by the question's key.
type Answers map[string]string

// Option is one choice.
type Option struct {
	Label, Value string
}

// Question asks for one thing: a choice if it has options, else a line of text.
type Question struct {
	Key, Title, Help string
	Options          []Option
	// Default is what an empty answer means. A choice without one has nothing preselected and must be made.
	Default func(Answers) string
	// DependsOn is the key of the answer that Default looks at, if any.
	DependsOn string
	// Check refuses an answer.
	Check func(string) error
}

// Page is a group of questions that is asked together, when it applies.
type Page struct {
	Title     string
	Questions []Question
	When      func(Answers) bool
}

func (p *Page) applies(answers Answers) bool { return p.When == nil || p.When(answers) }

func (q *Question) fallback(answers Answers) string {
	if q.Default == nil {
		return ""
	}
	return q.Default(answers)
}

func (q *Question) check(answer string) error {
	if len(q.Options) > 0 && answer == "" {
		return errors.New("choose one")
	}
	if q.Check == nil {
		return nil
	}
	return q.Check(answer)
}

// Always is a default that depends on nothing.
func Always(value string) func(Answers) string {
	return func(Answers) string { return value }
}

// Asker asks questions.
type Asker interface {
	// Ask goes through the pages that apply. Every question that was asked has an answer afterwards, its default if it was
	// left empty.
	Ask(ctx context.Context, pages []Page) (Answers, error)
	// Confirm asks for a yes; anything else is a no.
	Confirm(ctx context.Context, question string) (bool, error)
}
