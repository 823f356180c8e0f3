//! Answers as tables: what `kubectl get` shows. Columns and cells are [`crate::table`]'s.

use bytes::Bytes;
use serde_json::{Value, json};

use super::Call;
use super::output::Document;
use super::update::served_form;
use crate::registry::Form;
use crate::table::{IncludeObject, Printer, table};

impl Call {
    fn printer(&self) -> Printer {
        match &self.version().form {
            // Columns that cannot be read are shown as if the kind had none of its own.
            Form::Custom(version) => {
                Printer::custom(&version.printer_columns).unwrap_or_else(|_| Printer::builtin(&self.resource().kind))
            }
            Form::Typed(_) | Form::Converted { .. } => Printer::builtin(&self.resource().kind),
        }
    }

    /// A table of several objects, with the metadata of their list.
    pub(crate) fn table(&self, metadata: &Value, items: Vec<Document>, include: IncludeObject) -> Value {
        self.table_by(&self.printer(), metadata, items, include)
    }

    fn table_by(&self, printer: &Printer, metadata: &Value, items: Vec<Document>, include: IncludeObject) -> Value {
        let objects: Vec<Value> = items
            .into_iter()
            .map(|item| served_form(self, &item.into_value()))
            .collect();
        table(printer, &objects, metadata.clone(), include, self.server.clock.now())
    }

    /// A table of one object.
    pub(crate) fn table_of_one(&self, document: Document, include: IncludeObject) -> Value {
        self.table_of_one_by(&self.printer(), document, include)
    }

    fn table_of_one_by(&self, printer: &Printer, document: Document, include: IncludeObject) -> Value {
        let object = document.into_value();
        let metadata = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
        self.table_by(printer, &metadata, vec![Document::Value(object)], include)
    }
}

/// The objects of one watch as tables: the columns are read once and told once.
#[derive(Debug, Default)]
pub(crate) struct Columns {
    printer: Option<Printer>,
}

impl Columns {
    pub(crate) fn encode(&mut self, call: &Call, document: Document, include: IncludeObject) -> Bytes {
        let told = self.printer.is_some();
        let printer = self.printer.get_or_insert_with(|| call.printer());
        let mut table = call.table_of_one_by(printer, document, include);
        if told {
            table["columnDefinitions"] = Value::Null;
        }
        Bytes::from(table.to_string())
    }
}
