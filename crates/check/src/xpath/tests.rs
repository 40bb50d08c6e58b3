//! What paths find, which paths are rejected, and that any path on any text ends soon.

use super::*;
use proptest::prelude::*;
use std::cell::Cell;

const ORDER: &str = r#"<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE order SYSTEM "order.dtd">
<!-- one of many -->
<order date="2019-02-01" xmlns:b="http://localhost/b"><b:name>Mary &amp; Jim</b:name><b:city b:zip="12"/>
  <items n='"2"'>
    <book isbn="97814"><title>Harry Potter</title><price>25</price></book>
    <book isbn="97805"><title>Le seigneur</title><price>18.5</price><!--rare--></book>
  </items>
  <note xml:lang="fr">a<![CDATA[<b>]]>&#233;<?go on?></note>
  <empty></empty>
</order>"#;

fn spend(left: &Cell<usize>) -> impl Fn(usize) -> Result<(), String> + '_ {
    |cost| left.get().checked_sub(cost).map(|rest| left.set(rest)).ok_or_else(|| "too much".to_owned())
}

fn evaluate_path(text: &str, path: &str) -> Result<String, String> {
    let left = Cell::new(1_000_000);
    // The expected result is one that no path can have.
    Xml::new(path, "\0".to_owned())?.differing_result(text, &spend(&left)).map(Option::unwrap)
}

fn holds(path: &str, wanted: &str) -> bool {
    let left = Cell::new(1_000_000);
    Xml::new(path, wanted.to_owned()).unwrap().differing_result(ORDER, &spend(&left)).unwrap().is_none()
}

#[test]
fn each_part_of_the_language() {
    for (path, there) in [
        // Nodes, written as concatenated XML.
        ("//title", "<title>Harry Potter</title><title>Le seigneur</title>"),
        ("//title/text()", "Harry PotterLe seigneur"),
        ("/order/items/book[1]/@isbn", "<isbn>97814</isbn>"),
        ("//book[title='Le seigneur']/price/text()", "18.5"),
        ("//book[2]/node()", "<title>Le seigneur</title><price>18.5</price><!--rare-->"),
        ("//b:name/text()", "Mary &amp; Jim"),
        ("//b:*", "<b:name>Mary &amp; Jim</b:name><b:city b:zip=\"12\"/>"),
        ("//*[local-name()='city']/@b:zip", "<zip>12</zip>"),
        ("//name", ""),
        ("//note", "<note xml:lang=\"fr\">a<![CDATA[<b>]]>é<?go on?></note>"),
        ("//items/@*", "<n>&#34;2&#34;</n>"),
        ("//empty", "<empty/>"),
        ("//processing-instruction('go') | /comment()", "<!-- one of many --><?go on?>"),
        ("(//book)[last()]/price", "<price>18.5</price>"),
        ("//book[price > 20 and position() = 1]/title/text()", "Harry Potter"),
        ("//book[@isbn][2]/title/text()", "Le seigneur"),
        ("//price[. < 20]/..//title/text()", "Le seigneur"),
        ("//title[not(following::title)]/text()", "Le seigneur"),
        ("//price/preceding-sibling::*[1]/text()", "Harry PotterLe seigneur"),
        ("//price/ancestor::*[1]/@isbn", "<isbn>97814</isbn><isbn>97805</isbn>"),
        ("//book[2]/preceding::title/self::title/text()", "Harry Potter"),
        ("//items/following-sibling::*[2]", "<empty/>"),
        ("//items/descendant::price[2]", "<price>18.5</price>"),
        ("//title/ancestor-or-self::book[2]", ""),
        // Texts, numbers and booleans.
        ("count(//book)", "2"),
        ("count(//@*)", "6"),
        ("sum(//price)", "43.5"),
        ("sum(//title)", "NaN"),
        ("1 div 0", "+Inf"),
        ("1000000 * 10", "1E+07"),
        ("7 mod 3 - -2 * 3", "7"),
        ("--3", "3"),
        ("2 + 3 = 5 or error", "true"),
        ("//price != 25", "true"),
        ("not(//price != 0)", "false"),
        ("//price = //title", "false"),
        ("boolean(//dvd) = false()", "true"),
        ("string(//price)", "25"),
        ("string(//note)", "a<b>é"),
        ("string-length(//note)", "5"),
        ("string(0.000001 * 1)", "0.000001"),
        ("name(//b:city/@*)", "b:zip"),
        ("namespace-uri(//b:city)", "http://localhost/b"),
        ("concat(substring('12345', 2, 3), '-', substring('12345', 0 - 1, 3), substring(\"abc\", 1.5))", "234-1bc"),
        ("substring-before('a=b', '=')", "a"),
        ("substring-after('a=b', '=')", "b"),
        ("translate('bar', 'abr', 'AB')", "BA"),
        ("normalize-space('  a \n b ')", "a b"),
        ("round(-2.5) + floor(2.9) + ceiling(0.1)", "1"),
        ("lower-case('ABC')", "abc"),
        ("starts-with(//title, 'Harry') and ends-with(//title, 'Potter') and contains(//title, 'y P')", "true"),
        ("//price < //book/@isbn and //price >= 25 and not(//price > 25) and 18.5 >= //price", "true"),
        ("//title < //price or //title >= //title or //name <= //price or 1 > //name", "false"),
        ("//price <= //book[2]/price and not(//book[1]/price <= //book[2]/price)", "true"),
        ("//price != //price and not(//b:name != //b:name) and not(//name != //price)", "true"),
        // Compared with a boolean, a set of nodes is true if it is not empty; for all six
        // operators.
        (
            "//dvd < true() and true() > //dvd and //title >= true() and //dvd <= false() and not(//dvd >= true())",
            "true",
        ),
        ("2 > true() and '1' >= true() and not(2 < true())", "true"),
        ("matches(//book[2]/title, '^Le \\w+$')", "true"),
        ("//book[contains(title, 'div')]/div | //or/and", ""),
    ] {
        assert_eq!(evaluate_path(ORDER, path).as_deref(), Ok(there), "{path}");
    }
    assert_eq!(evaluate_path("<a xmlns='u'><b/></a>", "namespace-uri(/a/b)").as_deref(), Ok("u"));
    assert_eq!(evaluate_path("<a>\r\n</a>", "string-length(/a)").as_deref(), Ok("1"));
    // CDATA is one text with its neighbours, and written as it was.
    let parts = "<a>x&lt;<![CDATA[<y>]]><![CDATA[&]]>z<b/><![CDATA[]]><!--c-->w<![CDATA[v]]></a>";
    for (path, there) in [
        ("count(//text())", "2"),
        ("string(/a/text())", "x<<y>&z"),
        ("count(/a/node())", "4"),
        ("/a/text()[2]", "w<![CDATA[v]]>"),
        ("//text()[. = 'wv']/preceding-sibling::text()", "x&lt;<![CDATA[<y>]]><![CDATA[&]]>z"),
    ] {
        assert_eq!(evaluate_path(parts, path).as_deref(), Ok(there), "{path}");
    }
}

#[test]
fn an_empty_result_asks_for_a_node() {
    for (path, wanted, answer) in [
        ("//items/book", "", true),
        ("//items/book", " \n", true),
        ("//items/dvd", "", false),
        ("count(//book)", "2", true),
        ("count(//book)", "", false),
        ("count(//book)", "2 ", false),
        ("//price/text()", "2518.5", true),
    ] {
        assert_eq!(holds(path, wanted), answer, "{path}");
    }
}

#[test]
fn invalid_paths_are_rejected() {
    let refused = [
        ("", "a path is missing at the end"),
        ("count(//book", "`)` is missing at the end"),
        ("COUNT(//book)", "the function `COUNT` is not supported; did you mean `count`?"),
        ("string-lenght(a)", "the function `string-lenght` is not supported; did you mean `string-length`?"),
        ("id('x')", "the function `id` is not supported"),
        ("count(1)", "`count` needs a path that finds nodes"),
        ("concat('a')", "`concat` does not take 1 arguments"),
        ("'a", "a string that begins with ' is not closed"),
        ("a b", "`b` is not expected here"),
        ("a[", "a path is missing at the end"),
        ("a/", "a name is missing at the end"),
        ("childs::a", "the axis `childs` is not supported; did you mean `child`?"),
        ("namespace::a", "the axis `namespace` is not supported"),
        ("$a", "variables (`$`) are not supported"),
        ("1.2.3", "`1.2.3` is not a number"),
        ("'a'/b", "a path cannot continue after an expression that finds no nodes"),
        ("a | 1", "`|` needs a path on both sides"),
        ("é & €", "`&` is not expected here"),
        ("matches(a, b)", "`matches` takes a text and a regular expression in quotes"),
    ];
    for (path, why) in refused {
        assert_eq!(Xml::new(path, String::new()).map(drop), Err(why.to_owned()), "{path}");
    }
    for endless in ["a".repeat(3000), "(".repeat(60) + &")".repeat(60), "1".to_owned() + &"+1".repeat(200)] {
        assert!(Xml::new(&endless, String::new()).is_err());
    }
}

#[test]
fn texts_that_are_no_xml_or_too_much() {
    let told = |text: &str| evaluate_path(text, "/").unwrap_err();
    for text in [
        "",
        "this is definitely not xml <<<",
        "a text",
        "<a>",
        "<a></b>",
        "</a>",
        "<a/><b/>",
        "<a/>text",
        "<a b></a>",
        "<a>&nbsp;</a>",
        "<a>&#0;</a>",
        "<a b='&x;'/>",
        "<p:a/>",
        "<a><b xmlns:p='u'/><p:c/></a>",
        "<![CDATA[x]]><a/>",
        // The crate's reader alone does not report these.
        "<a/>&#32;",
        "<a/>\u{a0}",
        "<1a/>",
        "<a:b:c xmlns:a='u'/>",
        "<a 1b=''/>",
        "<a:/>",
        "< a/>",
        "<a><?1 x?></a>",
        "<a><?XML x?></a>",
        "<a><?p:i x?></a>",
        "<a b='1' b='2'/>",
        "<a b='1'c='2'/>",
        "<a b='<'/>",
        "<a b='&#2;'/>",
        "<a b='&'/>",
        "<a b=c/>",
        "<a p:b='1'/>",
        "<a xmlns:p=''/>",
        "<a xmlns:xmlns='u'/>",
        "<a>]]></a>",
        "<a>&#1;</a>",
        "<a>\u{1}</a>",
        "<a>\u{ffff}</a>",
        "<a><!-- -- --></a>",
        "<a><!DOCTYPE a></a>",
        "<a/><!DOCTYPE a>",
        "<!DOCTYPE a><!DOCTYPE a><a/>",
        "<a><?xml version='1.0'?></a>",
        "\n<?xml version='1.0'?><a/>",
        "<?xml?><a/>",
    ] {
        assert!(told(text).contains("not XML"), "{text}: {}", told(text));
    }
    for text in [
        "\u{feff}<?xml version='1.0'?>\n<!DOCTYPE a>\n<a/>\n<!--x-->\n",
        "<é.1-2 a = '1'\n\tb=\"'2>\" ></é.1-2 >",
        "<a xml:lang='' xmlns='u' xmlns:p='v' p:b='' b=''><p:c/>]]&gt;&#9;</a>",
        "<a p:b='' xmlns:p='v'/>",
    ] {
        assert!(evaluate_path(text, "/").is_ok(), "{text}: {:?}", evaluate_path(text, "/"));
    }
    // Messages quote nothing of the text, because it may be a secret.
    for text in ["<hunter2>", "<a></hunter2>", "</hunter2>", "<a>&hunter2;</a>", "<a b='&hunter2;'/>", "<hunter2:a/>"] {
        assert!(!told(text).contains("hunter2"), "{}", told(text));
    }
    // Entities are not expanded, and nothing is fetched.
    let bomb = "<!DOCTYPE a [<!ENTITY l 'lol'><!ENTITY m '&l;&l;&l;'><!ENTITY x SYSTEM 'file:///etc/passwd'>]>";
    assert!(told(&format!("{bomb}<a>&m;</a>")).contains("an entity that is not supported"));
    assert!(told(&format!("{bomb}<a>&x;</a>")).contains("an entity that is not supported"));
    assert_eq!(evaluate_path(&format!("{bomb}<a/>"), "/").as_deref(), Ok("<a/>"));

    assert!(told(&"<a>".repeat(100_000)).contains("elements within each other"));
    assert!(told(&format!("<a>{}</a>", "<b/>".repeat(300_000))).contains("more than 200000 nodes"));
    assert!(told(&format!("<a>{}</a>", "b".repeat(5 << 20))).contains("XML of more than"));
    // Quadratic cost in the number of attributes or namespaces would take minutes.
    let many: String = (0..150_000).map(|n| format!(" a{n}=''")).collect();
    assert_eq!(evaluate_path(&format!("<a{many}/>"), "count(/a/@*)").as_deref(), Ok("150000"));
    let many: String = (0..50_000).map(|n| format!(" xmlns:a{n}='u'")).collect();
    let deep = format!("<a{many}>{}</a>", "<a1:b xmlns:c='u'/>".repeat(40_000));
    assert_eq!(evaluate_path(&deep, "count(/a/a1:b)").as_deref(), Ok("40000"));
    assert_eq!(evaluate_path(&deep, "//*[namespace-uri()='u'][2]"), Err("too much".to_owned()));
}

#[test]
fn a_path_that_costs_too_much_ends() {
    let wide = format!("<a>{}</a>", "<b>text</b>".repeat(20_000));
    for path in [
        "//*[count(//*) > 0]",
        "//b[//b < //b]",
        "//b[//b = 1]",
        "//*[preceding::*[following::*]]",
        "//b[//b[//b = .]]",
        "//*[string(/) = 'x']",
    ] {
        assert_eq!(evaluate_path(&wide, path), Err("too much".to_owned()), "{path}");
    }
    // Comparing two sets of nodes does not have quadratic cost. Skipped nodes also cost budget.
    for path in ["//b = //b/text() and not(//b != //b)", "not(//b < //b or //b >= //b)"] {
        assert_eq!(evaluate_path(&wide, path).as_deref(), Ok("true"), "{path}");
    }
    let attributes: String = (0..5_000).map(|n| format!(" a{n}='{n}'")).collect();
    let attributes = format!("<a{attributes}/>");
    for path in ["//@*[//x]", "//@*[/descendant::x]", "//@*[/a/@a0/following::x]", "//@*[//@* > 9999]"] {
        assert_eq!(evaluate_path(&attributes, path), Err("too much".to_owned()), "{path}");
    }
    assert_eq!(evaluate_path(&attributes, "count(//@*[. >= 4990])").as_deref(), Ok("10"));
    let long = format!("<a>{}</a>", "x".repeat(4_000_000));
    let doubled = format!("string-length(concat({}))", vec!["/a"; 300].join(","));
    assert_eq!(evaluate_path(&long, &doubled), Err("too much".to_owned()));
    assert!(evaluate_path(&long, "/a").unwrap_err().contains("longer than"));
    // A large regular expression at each of 200 nodes would take minutes.
    let many = format!("<a><t>{}</t>{}</a>", "a".repeat(2_000), "<b/>".repeat(200));
    assert_eq!(evaluate_path(&many, "//b[matches(string(//t), '(a{1,100}){1,100}b')]"), Err("too much".to_owned()));
    assert_eq!(evaluate_path(&many, "count(//b[matches(string(//t), '^a+$')])").as_deref(), Ok("200"));
}

fn element() -> impl Strategy<Value = String> {
    let leaf = prop_oneof!["[a-c<>&'\"é ]{0,4}".prop_map(|text| {
        let mut out = String::from("t");
        text.chars().for_each(|c| out += &format!("&#{};", u32::from(c)));
        out
    })];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let parts = prop::collection::vec(inner, 0..4);
        ("[ab]", parts).prop_map(|(name, parts)| format!("<{name} n=\"&quot;1\">{}</{name}>", parts.concat()))
    })
}

proptest! {
    #[test]
    fn no_path_and_no_text_panics(
        path in "[ab/@.*\\[\\]()|='1:<>$,+ -]{0,20}",
        text in "[ab<>/=\"'&;!?\\-\\[\\]# ]{0,30}",
    ) {
        let _ = evaluate_path(ORDER, &path);
        let _ = evaluate_path(&text, "//*");
    }

    /// A written document is read as the same document.
    #[test]
    fn what_is_written_is_read_again(inner in element()) {
        let text = format!("<a>{inner}</a>");
        let once = evaluate_path(&text, "/").map_err(TestCaseError::fail)?;
        prop_assert_eq!(evaluate_path(&once, "/"), Ok(once.clone()));
        prop_assert_eq!(evaluate_path(&once, "string(/)"), evaluate_path(&text, "string(/)"));
        prop_assert_eq!(evaluate_path(&once, "count(//node()|//@*)"), evaluate_path(&text, "count(//node()|//@*)"));
    }

    /// A path of names finds the nested elements of these names.
    #[test]
    fn names_are_followed(names in prop::collection::vec("[a-z]{1,3}", 1..6)) {
        let open: String = names.iter().map(|name| format!("<{name}>")).collect();
        let close: String = names.iter().rev().map(|name| format!("</{name}>")).collect();
        let text = format!("{open}x{close}");
        prop_assert_eq!(evaluate_path(&text, &format!("/{}/text()", names.join("/"))), Ok("x".to_owned()));
        prop_assert_eq!(evaluate_path(&text, &format!("count(//{})", names[0])),
            Ok(names.iter().filter(|name| **name == names[0]).count().to_string()));
    }
}
