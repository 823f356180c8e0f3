//! Metrics as programs tell them, read as far as measurements need it.

/// The series of a name: labels and value.
pub(super) fn series<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = (&'a str, f64)> {
    text.lines().filter_map(move |line| {
        let (labels, value) = line.strip_prefix(name)?.strip_prefix('{')?.rsplit_once("} ")?;
        Some((labels, value.parse().ok()?))
    })
}

/// The value of a label.
pub(super) fn value<'a>(labels: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = labels.split_once(&format!("{name}=\""))?;
    rest.split_once('"').map(|(value, _)| value)
}

/// The sum of all series of a name whose labels include one.
pub(super) fn sum(text: &str, name: &str, (label, wanted): (&str, &str)) -> f64 {
    let counted = series(text, name).filter(|(labels, _)| value(labels, label) == Some(wanted));
    counted.map(|(_, count)| count).sum()
}

/// The bound of the bucket in which this share of a histogram's values is reached, for the series with one label.
pub(super) fn quantile(text: &str, name: &str, with: (&str, &str), share: f64) -> f64 {
    let all = sum(text, &format!("{name}_count"), with);
    let bucket = format!("{name}_bucket");
    let reached = series(text, &bucket).filter(|(labels, count)| {
        let (label, wanted) = with;
        value(labels, label) == Some(wanted) && *count >= share * all
    });
    let bounds = reached.filter_map(|(labels, _)| value(labels, "le")?.parse().ok());
    bounds.fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# TYPE took_seconds histogram\n\
                        took_seconds_sum{result=\"placed\"} 0.5\n\
                        took_seconds_count{result=\"placed\"} 100\n\
                        took_seconds_bucket{le=\"0.001\",result=\"placed\"} 98\n\
                        took_seconds_bucket{le=\"0.01\",result=\"placed\"} 99\n\
                        took_seconds_bucket{le=\"+Inf\",result=\"placed\"} 100\n\
                        took_seconds_count{result=\"not\"} 7\n\
                        took_seconds_bucket{le=\"0.001\",result=\"not\"} 7\n";

    #[test]
    fn series_are_told_apart_by_name_and_label() {
        assert_eq!(sum(TEXT, "took_seconds_count", ("result", "placed")), 100.0);
        assert_eq!(sum(TEXT, "took_seconds_count", ("result", "gone")), 0.0);
        assert_eq!(series(TEXT, "took_seconds_bucket").count(), 4);
    }

    #[test]
    fn a_quantile_is_the_bound_of_its_bucket() {
        let at = |share| quantile(TEXT, "took_seconds", ("result", "placed"), share);
        assert_eq!((at(0.5), at(0.99), at(1.0)), (0.001, 0.01, f64::INFINITY));
    }
}
