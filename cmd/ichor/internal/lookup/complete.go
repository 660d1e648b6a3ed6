// SPDX-License-Identifier: Apache-2.0

package lookup

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/proposal"
	"maesh.dev/ichor/cmd/ichor/internal/screen"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// completionTimeout bounds what a press of the tab key may take.
const completionTimeout = 3 * time.Second

// CompleteMachines completes names of machines, with where each is as its description. Keep chooses which.
func CompleteMachines(env *cli.Env, keep func(*v1alpha1.TalosMachine) bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		given := map[string]bool{}
		for _, arg := range args {
			given[arg] = true
		}
		var names []cobra.Completion
		for _, machine := range completionMachines(cmd.Context(), env) {
			if keep != nil && !keep(&machine) {
				continue
			}
			for _, name := range []string{machine.Spec.Hostname, machine.Name} {
				if name != "" && !given[name] && strings.HasPrefix(name, typed) {
					names = append(names, cobra.CompletionWithDesc(name, describe(&machine)))
				}
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

func describe(machine *v1alpha1.TalosMachine) string {
	words := []string{string(machine.Status.Phase)}
	if machine.Status.Stage != "" {
		words = append(words, string(machine.Status.Stage))
	}
	if model := screen.Model(machine.Status.Inventory); model != "" {
		words = append(words, model)
	}
	if len(machine.Status.Addresses) > 0 {
		words = append(words, machine.Status.Addresses[0])
	}
	return strings.Join(words, ", ")
}

func completionMachines(ctx context.Context, env *cli.Env) []v1alpha1.TalosMachine {
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	client, err := env.Client()
	if err != nil {
		return nil
	}
	machines, _ := Machines(ctx, client, metav1.ListOptions{})
	return machines
}

// CompleteClusters completes names of clusters.
func CompleteClusters(env *cli.Env) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		client, err := env.Client()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		list, err := client.IchorV1alpha1().TalosClusters().List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []cobra.Completion
		for _, cluster := range list.Items {
			if strings.HasPrefix(cluster.Name, typed) {
				names = append(names, cobra.CompletionWithDesc(cluster.Name, cluster.Spec.ControlPlane.Endpoint.Host))
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// CompletePatches completes names of patches, with how far each has come as its description.
func CompletePatches(env *cli.Env) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		client, err := env.Client()
		if err != nil || len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		list, err := client.IchorV1alpha1().TalosConfigPatches().List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []cobra.Completion
		for _, patch := range list.Items {
			if strings.HasPrefix(patch.Name, typed) {
				counts := patch.Status.Machines
				names = append(names, cobra.CompletionWithDesc(patch.Name, fmt.Sprintf("%d of %d machines run with it", counts.Applied, counts.Matched)))
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// CompleteDisks completes the disks of the machine that is named on the line.
func CompleteDisks(env *cli.Env) cobra.CompletionFunc {
	return ofMachine(env, func(machine *v1alpha1.TalosMachine) []cobra.Completion {
		var names []cobra.Completion
		for _, disk := range proposal.Disks(machine.Status.Inventory) {
			name := disk.Match.Serial
			if name == "" {
				name = disk.Match.WWID
			}
			description := strings.Join([]string{disk.Device, screen.DiskSize(disk.Size), disk.Model, disk.Objection}, " ")
			if name != "" && !disk.Impossible {
				names = append(names, cobra.CompletionWithDesc(name, strings.TrimSpace(description)))
			}
		}
		return names
	})
}

// CompleteLinks completes the network interfaces of the machine that is named on the line.
func CompleteLinks(env *cli.Env) cobra.CompletionFunc {
	return ofMachine(env, func(machine *v1alpha1.TalosMachine) []cobra.Completion {
		var names []cobra.Completion
		for _, link := range proposal.Links(machine) {
			names = append(names, cobra.CompletionWithDesc(link.Name, link.PermanentMAC+" "+screen.LinkState(&link.LinkInventory)))
		}
		return names
	})
}

func ofMachine(env *cli.Env, values func(*v1alpha1.TalosMachine) []cobra.Completion) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		machine, err := Machine(completionMachines(cmd.Context(), env), args[0])
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var fitting []cobra.Completion
		for _, value := range values(machine) {
			if strings.HasPrefix(value, typed) {
				fitting = append(fitting, value)
			}
		}
		return fitting, cobra.ShellCompDirectiveNoFileComp
	}
}
