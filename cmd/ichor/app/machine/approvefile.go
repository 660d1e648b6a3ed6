// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/cmd/ichor/internal/approvalplan"
	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/screen"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
)

// standardInput is how -f names it, as kubectl's does.
const standardInput = "-"

// filePlan is the approval of all machines of a plan: read, judged as a whole, tried on the server without storing
// anything, and only then carried out.
type filePlan struct {
	*approveOptions
	files   []string
	remarks *remarks
}

// checkFiles refuses what can't go together with -f.
func (o *approveOptions) checkFiles(cmd *cobra.Command, args []string) error {
	if len(args) > 0 || o.targets.bySelector() {
		return cli.Usagef("-f names the machines in the file: leave names, --all and -l out")
	}
	for _, name := range decisionFlags {
		if cmd.Flags().Changed(name) {
			return cli.Usagef("--%s belongs into the file when there is -f: into the machine's entry, or into defaults for all", name)
		}
	}
	if count := len(slices.DeleteFunc(slices.Clone(o.files), func(file string) bool { return file != standardInput })); count > 1 {
		return cli.Usagef("-f -: standard input can be read once only")
	}
	for _, err := range []error{o.print.Check(), o.wait.Check(), o.dryRun.Check()} {
		if err != nil {
			return err
		}
	}
	if o.yes || o.dryRun.On() || o.canAskAboutFiles() {
		return nil
	}
	return cli.Usagef("nobody can be asked here for consent: say --yes to approve the machines and wipe the disks as the file says, or --dry-run=server to check it only")
}

// canAskAboutFiles is true when a person is there to answer; not while standard input is the plan.
func (o *approveOptions) canAskAboutFiles() bool {
	return o.env.CanAsk() && !slices.Contains(o.files, standardInput)
}

// runFiles approves the machines of a plan, or none of them.
func (o *approveOptions) runFiles(ctx context.Context) error {
	p := &filePlan{approveOptions: o, files: o.files, remarks: newRemarks(o.env)}
	items, err := p.read()
	if err != nil {
		return err
	}
	if err := p.load(ctx); err != nil {
		return err
	}
	targets, faults := approvalplan.Plan(items, approvalplan.Facts{
		Machines: p.machines, Clusters: p.clusters,
		Blocked: func(machine *v1alpha1.TalosMachine) error { return blocked(machine, p.env.Name) },
	})
	if err := approvalplan.Join(faults); err != nil {
		return err
	}
	fresh := slices.DeleteFunc(slices.Clone(targets), func(target approvalplan.Target) bool { return target.Unchanged })
	tried, err := p.tryAll(ctx, fresh)
	if err != nil {
		return err
	}
	if err := p.consent(ctx, fresh); err != nil {
		return err
	}
	return p.carryOut(ctx, targets, tried)
}

// read reads all files; what is wrong with any of them is told at once.
func (p *filePlan) read() ([]*approvalplan.Item, error) {
	var items []*approvalplan.Item
	var faults []*approvalplan.Fault
	for _, file := range p.files {
		found, bad, err := p.readFile(file)
		if err != nil {
			return nil, cli.WithCode(cli.ExitUsage, fmt.Errorf("-f: %w", err))
		}
		items, faults = append(items, found...), append(faults, bad...)
	}
	return items, approvalplan.Join(faults)
}

func (p *filePlan) readFile(file string) ([]*approvalplan.Item, []*approvalplan.Fault, error) {
	var in io.Reader = p.env.In
	name := "standard input"
	if file != standardInput {
		opened, err := os.Open(file)
		if err != nil {
			return nil, nil, err
		}
		defer func() { _ = opened.Close() }()
		in, name = opened, file
	}
	items, faults := approvalplan.Read(name, in)
	return items, faults, nil
}

// load reads all machines and clusters, with a client that notes the server's warnings by machine.
func (p *filePlan) load(ctx context.Context) error {
	config, err := p.env.RESTConfig()
	if err != nil {
		return err
	}
	config.WarningHandler, config.WarningHandlerWithContext = nil, p.remarks
	if p.client, err = versioned.NewForConfig(config); err != nil {
		return err
	}
	if p.machines, err = listMachines(ctx, p.client); err != nil {
		return err
	}
	clusters, err := p.client.IchorV1alpha1().TalosClusters().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	p.clusters = clusters.Items
	return nil
}

// consent shows what will be done, and asks.
func (p *filePlan) consent(ctx context.Context, fresh []approvalplan.Target) error {
	if len(fresh) == 0 {
		return nil
	}
	ask := !p.yes && !p.dryRun.On()
	if ask || !p.print.Asked() {
		rows := make([]screen.PlanRow, 0, len(fresh))
		for _, target := range fresh {
			rows = append(rows, screen.PlanRow{Machine: target.Machine, Decision: target.Decision, Warnings: p.remarks.about(target.Machine.Name)})
		}
		_, _ = fmt.Fprintln(p.env.ErrOut, screen.Plan(rows, p.env.ErrStyle()))
	}
	if !ask {
		return nil
	}
	question := fmt.Sprintf("Approve %s, and wipe what is listed to be wiped?", screen.Plural(len(fresh), "machine", "machines"))
	yes, err := p.asker().Confirm(ctx, question)
	if err != nil {
		return left(err)
	}
	if !yes {
		return cli.Cancelled()
	}
	return nil
}
