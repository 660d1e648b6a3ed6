// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/screen"
)

// Screen is where progress is shown.
type Screen struct {
	// Out is standard error: standard output is for data.
	Out io.Writer
	// In is read for Ctrl-C while progress is redrawn; nil if it isn't a terminal.
	In io.Reader
	// Redraw draws over what was drawn; else each transition is a line with its time.
	Redraw bool
	Style  screen.Style
	Now    func() time.Time
	// options of the terminal program, for tests.
	options []tea.ProgramOption
}

// NewScreen is where a command shows its progress.
func NewScreen(env *cli.Env) Screen {
	made := Screen{Out: env.ErrOut, Redraw: env.CanRedraw(), Style: env.ErrStyle(), Now: env.Now}
	if env.Terminal.In {
		made.In = env.In
	}
	return made
}

// Work runs until what is watched is done, or the context ends. It changes its board only inside update, which also says
// what changed in a line for people; an empty line means nothing worth telling.
type Work func(ctx context.Context, update func(change func() (line string))) error

// Follow shows work until it is done. When the context ends first, the error is the context's cause.
func (s Screen) Follow(ctx context.Context, board Board, work Work) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var err error
	if s.Redraw {
		err = s.redraw(ctx, cancel, board, work)
	} else {
		err = s.tell(ctx, work)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// tell prints a line per transition.
func (s Screen) tell(ctx context.Context, work Work) error {
	var mutex sync.Mutex
	return work(ctx, func(change func() string) {
		mutex.Lock()
		defer mutex.Unlock()
		if line := change(); line != "" {
			_, _ = fmt.Fprintf(s.Out, "%s %s\n", s.Now().Format(time.RFC3339), line)
		}
	})
}

// redraw draws the board every second and after each change.
func (s Screen) redraw(ctx context.Context, cancel context.CancelCauseFunc, board Board, work Work) error {
	model := &live{board: board, screen: s, interrupt: func() { cancel(cli.ErrInterrupted) }}
	options := []tea.ProgramOption{
		tea.WithOutput(s.Out), tea.WithInput(s.In), tea.WithoutSignalHandler(), tea.WithFPS(10),
	}
	program := tea.NewProgram(model, append(options, s.options...)...)
	finished := make(chan error, 1)
	go func() {
		err := work(ctx, func(change func() string) {
			model.mutex.Lock()
			line := change()
			model.mutex.Unlock()
			if line != "" {
				program.Send(changedMsg{})
			}
		})
		program.Send(finishedMsg{})
		finished <- err
	}()
	_, err := program.Run()
	if err != nil {
		cancel(fmt.Errorf("draw progress: %w", err))
	}
	return <-finished
}

// Messages of the live view.
type (
	changedMsg  struct{}
	finishedMsg struct{}
	tickMsg     struct{}
)

// live is the bubbletea model that draws a board.
type live struct {
	mutex     sync.Mutex // guards board
	board     Board
	screen    Screen
	width     int
	interrupt func()
}

// Init implements tea.Model.
func (l *live) Init() tea.Cmd { return tick() }

func tick() tea.Cmd {
	return tea.Tick(time.Second, func(time.Time) tea.Msg { return tickMsg{} })
}

// Update implements tea.Model.
func (l *live) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	switch message := message.(type) {
	case tea.WindowSizeMsg:
		l.width = message.Width
	case tickMsg:
		return l, tick()
	case finishedMsg:
		return l, tea.Quit
	case tea.KeyPressMsg:
		if message.String() == "ctrl+c" {
			l.interrupt() // the work's watch ends with its context, and that ends the program
		}
	}
	return l, nil
}

// View implements tea.Model.
func (l *live) View() tea.View {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	text := ""
	for _, line := range l.board.Lines(l.screen.Now(), l.screen.Style, l.width) {
		text += line + "\n"
	}
	return tea.NewView(text)
}
