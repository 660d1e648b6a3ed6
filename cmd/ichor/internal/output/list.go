// SPDX-License-Identifier: Apache-2.0

package output

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/kubectl/pkg/cmd/get"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

const (
	// tableAccept asks for a table made by the server, or the objects where it can't make one.
	tableAccept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
	// pageSize is how many objects are asked for at a time, as kubectl does.
	pageSize = 500
)

// List prints a list of one resource, once or as it changes.
type List struct {
	// Resource is the plural, for instance talosmachines.
	Resource string
	// Empty is said on standard error when there is nothing to print.
	Empty string

	Print         *get.PrintFlags
	Selector      string
	FieldSelector string
	Watch         bool
}

// NewList makes the list of a resource.
func NewList(resource, empty string) *List {
	return &List{Resource: resource, Empty: empty, Print: get.NewGetPrintFlags()}
}

// AddFlags adds the flags that kubectl get has too.
func (l *List) AddFlags(cmd *cobra.Command) {
	l.Print.AddFlags(cmd)
	cmd.Flags().StringVarP(&l.Selector, "selector", "l", "", "Only those with these labels, for instance rack=1,tier!=test.")
	cmd.Flags().StringVar(&l.FieldSelector, "field-selector", "", "Only those with these field values, for instance spec.approvalState=pending.")
	cmd.Flags().BoolVarP(&l.Watch, "watch", "w", false, "After listing, print each change as it comes.")
}

// Run prints the list.
func (l *List) Run(ctx context.Context, env *cli.Env) error {
	printer, err := l.printer()
	if err != nil {
		return cli.WithCode(cli.ExitUsage, err)
	}
	client, err := restClient(env)
	if err != nil {
		return err
	}
	list, err := l.fetch(ctx, client)
	if err != nil {
		return err
	}
	if isEmpty(list) && l.isHuman() {
		env.Infof("%s", l.Empty)
	} else if err := l.printList(printer, list, env.Out); err != nil {
		return err
	}
	if !l.Watch {
		return nil
	}
	return l.watch(ctx, client, printer, list, env.Out)
}

func (l *List) isHuman() bool {
	format := *l.Print.OutputFormat
	template := l.Print.TemplateFlags.TemplateArgument
	return (format == "" || format == "wide") && (template == nil || *template == "")
}

func (l *List) sortBy() string {
	if l.Print.HumanReadableFlags.SortBy == nil {
		return ""
	}
	return *l.Print.HumanReadableFlags.SortBy
}

func (l *List) printer() (printers.ResourcePrinter, error) {
	printer, err := l.Print.ToPrinter()
	if err != nil {
		return nil, err
	}
	if sortBy := l.sortBy(); sortBy != "" && !l.Watch {
		printer = &get.SortingPrinter{Delegate: printer, SortField: sortBy}
	}
	if l.isHuman() {
		printer = &get.TablePrinter{Delegate: printer}
	}
	return printer, nil
}

// restClient speaks the group's API without types, so that a table comes through as it is.
func restClient(env *cli.Env) (*rest.RESTClient, error) {
	config, err := env.RESTConfig()
	if err != nil {
		return nil, err
	}
	config.ContentConfig = resource.UnstructuredPlusDefaultContentConfig()
	config.GroupVersion = &v1alpha1.SchemeGroupVersion
	config.APIPath = "/apis"
	return rest.RESTClientFor(config)
}

func (l *List) request(client *rest.RESTClient, options metav1.ListOptions) *rest.Request {
	options.LabelSelector, options.FieldSelector = l.Selector, l.FieldSelector
	request := client.Get().Resource(l.Resource).VersionedParams(&options, metav1.ParameterCodec)
	if l.isHuman() {
		request = request.SetHeader("Accept", tableAccept)
		if l.sortBy() != "" {
			request = request.Param("includeObject", string(metav1.IncludeObject))
		}
	}
	return request
}

// fetch gets all pages as one list, or one table.
func (l *List) fetch(ctx context.Context, client *rest.RESTClient) (runtime.Object, error) {
	var all runtime.Object
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := l.request(client, options).Do(ctx).Get()
		if err != nil {
			return nil, err
		}
		if all, err = join(all, page); err != nil {
			return nil, err
		}
		list, err := meta.ListAccessor(page)
		if err != nil {
			return nil, err
		}
		if options.Continue = list.GetContinue(); options.Continue == "" {
			return all, nil
		}
	}
}

// join puts a page behind those before it. The list keeps the resourceVersion of the first page, which is that of all.
func join(all, page runtime.Object) (runtime.Object, error) {
	if all == nil {
		return page, nil
	}
	switch all := all.(type) {
	case *unstructured.UnstructuredList:
		next, ok := page.(*unstructured.UnstructuredList)
		if !ok {
			return nil, fmt.Errorf("the server changed from a list to %T between two pages", page)
		}
		all.Items = append(all.Items, next.Items...)
		all.SetContinue("")
		all.SetRemainingItemCount(nil)
		return all, nil
	case *unstructured.Unstructured:
		next, ok := page.(*unstructured.Unstructured)
		if !ok {
			return nil, fmt.Errorf("the server changed from a table to %T between two pages", page)
		}
		rows, _ := all.Object["rows"].([]any)
		more, _ := next.Object["rows"].([]any)
		all.Object["rows"] = append(rows, more...)
		return all, nil
	}
	return nil, fmt.Errorf("the server answered a list with %T", all)
}

func isEmpty(list runtime.Object) bool {
	switch list := list.(type) {
	case *unstructured.UnstructuredList:
		return len(list.Items) == 0
	case *unstructured.Unstructured:
		rows, _ := list.Object["rows"].([]any)
		return len(rows) == 0
	}
	return false
}

func (l *List) printList(printer printers.ResourcePrinter, list runtime.Object, out io.Writer) error {
	if !l.isHuman() {
		return printer.PrintObj(list, out)
	}
	tab := printers.GetNewTabWriter(out)
	if err := printer.PrintObj(list, tab); err != nil {
		return err
	}
	return tab.Flush()
}

// watch prints an object, or a row, per change until the context ends.
func (l *List) watch(ctx context.Context, client *rest.RESTClient, printer printers.ResourcePrinter, list runtime.Object, out io.Writer) error {
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return err
	}
	// Resumes by itself when the server ends a watch, as it does every half hour or so.
	stream, err := watchtools.NewRetryWatcherWithContext(ctx, accessor.GetResourceVersion(), &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.Watch = true
			return l.request(client, options).Watch(ctx)
		},
	})
	if err != nil {
		return err
	}
	defer stream.Stop()
	for {
		select {
		case <-ctx.Done():
			return watchEnded(ctx)
		case event, open := <-stream.ResultChan():
			switch {
			case !open:
				return watchEnded(ctx)
			case event.Type == watch.Error:
				return fmt.Errorf("watch %s: %w", l.Resource, apierrors.FromObject(event.Object))
			case event.Type == watch.Bookmark:
				continue
			}
			if err := l.printList(printer, event.Object, out); err != nil {
				return err
			}
		}
	}
}

func watchEnded(ctx context.Context) error {
	switch {
	case errors.Is(context.Cause(ctx), cli.ErrInterrupted):
		return cli.ErrStopped
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return errors.New("the server ended the watch; start it again to carry on")
}
